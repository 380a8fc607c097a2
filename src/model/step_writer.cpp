#include "model/step_writer.hpp"

#include <fmt/format.h>

#include <utility>

namespace ebb {

namespace {

constexpr double k_step_ns_per_s = 1e9;

const char *iteration_kind_name(iteration_kind kind) {
    constexpr const char *k_names[] = {"embedding", "layer", "head", "optimizer"};
    return k_names[static_cast<size_t>(kind)];
}

}  // namespace

// --------------------------------------------------------------------------------------------------------- events --

uint32_t step_writer::operation(const std::string &name) {
    const auto [found, is_new] = operations_.try_emplace(name, static_cast<uint32_t>(to_.model.operation_names.size()));
    if (is_new) {
        to_.model.operation_names.push_back(name);
    }
    return found->second;
}

void step_writer::work(const layer_work &w) {
    step_event e;
    e.what = step_event_kind::work;
    e.time_ns = rates_.work_ns(w);
    e.hbm_fraction = rates_.hbm_fraction(w);
    e.operation = operation(w.name);
    to_.model.events.push_back(e);
}

void step_writer::wait(double time_ns) {
    step_event e;
    e.time_ns = time_ns;
    e.operation = operation("pipeline_wait");
    to_.model.events.push_back(e);
}

void step_writer::collective_begin(const std::string &name, double bytes, double bytes_per_second) {
    step_event e;
    e.what = step_event_kind::collective_begin;
    e.time_ns = bytes * k_step_ns_per_s / bytes_per_second;
    e.operation = operation(name);
    to_.model.events.push_back(e);
    collective_runs_ = true;
}

void step_writer::collective_end() {
    if (!std::exchange(collective_runs_, false)) {
        return;
    }
    step_event e;
    e.what = step_event_kind::collective_end;
    to_.model.events.push_back(e);
}

void step_writer::on_tensor(step_event_kind what, uint32_t tensor) {
    step_event e;
    e.what = what;
    e.tensor = tensor;
    to_.model.events.push_back(e);
}

// -------------------------------------------------------------------------------------------------------- tensors --

uint32_t step_writer::add_tensors(const planned_iteration &it, const layer_graph &graph) {
    const auto base = static_cast<uint32_t>(to_.model.tensors.size());
    const std::string layer_name = fmt::format("layer.{}", it.layer);
    for (const layer_tensor &t : graph.tensors) {
        step_tensor &made = to_.model.tensors.emplace_back();
        const tensor_placement placement = saved_.place(layer_name, t);
        made.name = layer_name + '/' + t.name;
        made.size_bytes = t.size_bytes;
        made.micro_batch = it.micro_batch;
        made.stage = it.chunk;
        made.layer = it.layer;
        made.can_offload = t.role != tensor_role::always_kept;
        made.can_recompute = t.can_recompute;
        for (const layer_work &w : t.recompute) {
            made.recompute_ns += rates_.work_ns(w);
        }
        for (const uint32_t from : t.from) {
            made.recompute_from.push_back(base + from);
        }
        if (settings_.fixed_save_set) {
            const bool again = placement == tensor_placement::recompute;
            made.can_keep = !again;
            made.can_offload = made.can_offload && !again;
            made.can_recompute = again;
        }
        to_.save_set.placement.push_back(placement);
        to_.role.push_back(t.role);
    }
    return base;
}

// The next event is where the layer's backward begins. What is nearly free is computed where it is used instead.
void step_writer::set_recompute_place(uint32_t base, const layer_graph &graph) {
    const auto here = static_cast<uint32_t>(to_.model.events.size());
    for (uint32_t i = 0; i < graph.tensors.size(); ++i) {
        if (graph.tensors[i].can_recompute && graph.tensors[i].role != tensor_role::nearly_free) {
            to_.model.tensors[base + i].recompute_at = here;
        }
    }
}

// ----------------------------------------------------------------------------------------------------- iterations --

// On the critical path it is work: compute waits for it whatever else the collectives' engine has in hand.
void step_writer::exchange(const layer_step &s) {
    const bool begin = s.what == layer_step_kind::exchange_begin;
    if (settings_.all_to_all == collective_overlap::exposed) {
        if (begin) {
            work(s.work);
        }
    } else if (begin) {
        collective_begin(s.work.name, s.work.exchange_bytes, rates_.all_to_all_bytes_per_second);
    } else if (settings_.all_to_all == collective_overlap::own_iteration) {
        collective_end();
    }
}

void step_writer::layer_step_events(const layer_step &s, uint32_t base) {
    switch (s.what) {
        case layer_step_kind::work:
            return work(s.work);
        case layer_step_kind::produce:
            return on_tensor(step_event_kind::produce, base + s.tensor);
        case layer_step_kind::use:
            return on_tensor(step_event_kind::use, base + s.tensor);
        case layer_step_kind::release:
            return on_tensor(step_event_kind::release, base + s.tensor);
        case layer_step_kind::exchange_begin:
        case layer_step_kind::exchange_end:
            return exchange(s);
        case layer_step_kind::backward_begins:
            return;  // set_recompute_place
    }
}

void step_writer::layer(const planned_iteration &it) {
    const layer_graph &graph = layers_.graphs[layers_.graph_of_layer[it.layer]];
    if (!it.backward) {
        first_tensor_[key_of(it)] = add_tensors(it, graph);
    }
    const uint32_t base = first_tensor_[key_of(it)];
    for (const layer_step &s : it.backward ? graph.backward : graph.forward) {
        if (s.what == layer_step_kind::backward_begins) {
            set_recompute_place(base, graph);
        }
        layer_step_events(s, base);
    }
    if (settings_.all_to_all == collective_overlap::across_iterations && settings_.expert_shards > 1) {
        collective_end();
    }
}

void step_writer::body(const planned_iteration &it) {
    switch (it.kind) {
        case iteration_kind::layer:
            return layer(it);
        case iteration_kind::optimizer:
            return work(optimizer_work(parameters_held(model_, settings_), settings_));
        case iteration_kind::embedding:
        case iteration_kind::head:
            break;
    }
    const bool is_head = it.kind == iteration_kind::head;
    for (const layer_work &w :
         is_head ? head_work(model_, settings_, it.backward) : embedding_work(model_, settings_, it.backward)) {
        work(w);
    }
}

void step_writer::collectives_before(const std::vector<planned_iteration> &all, size_t at) {
    const double rate = rates_.collective_bytes_per_second;
    const auto gather = [&](const planned_iteration &of) {
        if (of.gather_bytes > 0) {
            collective_begin("gather", of.gather_bytes, rate);
        }
    };
    if (settings_.gathers == collective_overlap::across_iterations) {
        const bool is_optimizer = all[at].kind == iteration_kind::optimizer;
        if (at == 0) {
            gather(all[0]);
            collective_end();
        }
        if (at != 0 && all[at - 1].scatter_bytes > 0) {
            collective_begin("scatter", all[at - 1].scatter_bytes, rate);
        }
        if (at + 1 < all.size()) {
            gather(all[at + 1]);
        }
        if (is_optimizer) {
            collective_end();  // it needs all gradients
        }
        return;
    }
    gather(all[at]);
    if (settings_.gathers == collective_overlap::exposed) {
        collective_end();
    } else if (all[at].scatter_bytes > 0) {
        collective_begin("scatter", all[at].scatter_bytes, rate);
    }
}

void step_writer::collectives_behind(const planned_iteration &it) {
    if (settings_.gathers == collective_overlap::exposed && it.scatter_bytes > 0) {
        collective_begin("scatter", it.scatter_bytes, rates_.collective_bytes_per_second);
    }
    collective_end();
}

void step_writer::write(const std::vector<planned_iteration> &iterations) {
    const bool sharded = settings_.shards > 1;
    operations_.emplace(to_.model.operation_names.front(), 0);
    for (size_t at = 0; at < iterations.size(); ++at) {
        const planned_iteration &it = iterations[at];
        step_iteration made;
        made.name = iteration_kind_name(it.kind);
        made.is_layer = it.kind == iteration_kind::layer;
        made.backward = it.backward;
        made.layer = it.layer;
        made.micro_batch = it.micro_batch;
        made.begin = static_cast<uint32_t>(to_.model.events.size());
        if (it.pipeline_wait_ns > 0) {
            wait(it.pipeline_wait_ns);
        }
        if (sharded) {
            collectives_before(iterations, at);
        }
        body(it);
        if (sharded) {
            collectives_behind(it);
        }
        made.end = static_cast<uint32_t>(to_.model.events.size());
        to_.iterations.push_back(made);
    }
}

}  // namespace ebb
