#include "model/step_iterations.hpp"

#include <algorithm>

#include "model/model_size.hpp"
#include "model/pipeline_order.hpp"

namespace ebb {

namespace {

constexpr double k_logit_size = 4;  // fp32
constexpr double k_head_bytes = 2;  // of a weight of head or embedding: bf16 whatever the layers are in

// What one device receives when a group of so many gathers, per parameter's byte.
double others_share(double devices) {
    return devices > 1 ? 1 - 1 / devices : 0;
}

// Of a layer: experts have other, smaller groups to gather from.
struct moved_parameters {
    double gathered = 0;
    double scattered = 0;
};

moved_parameters moved_of_layer(const model_profile &model, const mlp_profile &mlp, const step_settings &s) {
    const layer_parameters p = parameters_of_layer(model, mlp);
    const auto shards = static_cast<double>(s.shards);
    const auto expert_shards = static_cast<double>(s.expert_shards);
    const double moved = (p.attention + p.dense) * others_share(shards) +
                         p.routed_experts / expert_shards * others_share(shards / expert_shards);
    return {moved * s.gathered_parameter_bytes(), moved * s.gradient_bytes};
}

moved_parameters moved_of_head(const model_profile &model, const step_settings &s) {
    const double moved = embedding_parameters(model) * others_share(static_cast<double>(s.shards));
    return {moved * k_head_bytes, moved * s.gradient_bytes};
}

double time_of(const std::vector<layer_work> &all, const step_rates &rates) {
    double sum = 0;
    for (const layer_work &w : all) {
        sum += rates.work_ns(w);
    }
    return sum;
}

// Without recompute, which depends on the plan: only how long other stages are waited for comes from this.
double time_of(const std::vector<layer_step> &steps, const step_rates &rates) {
    double sum = 0;
    for (const layer_step &s : steps) {
        sum += s.what == layer_step_kind::work ? rates.work_ns(s.work) : 0;
    }
    return sum;
}

std::vector<pipeline_time> times_of_parts(const model_profile &model, const step_settings &s, const step_layers &layers,
                                          const step_rates &rates) {
    const uint64_t parts = s.pipeline_stages * s.pipeline_chunks;
    std::vector<pipeline_time> times(parts);
    for (uint64_t p = 0; p < parts; ++p) {
        const layer_range range = layers_of_part(model.layer_count(), parts, p);
        for (uint32_t l = range.begin; l < range.end; ++l) {
            const layer_graph &graph = layers.graphs[layers.graph_of_layer[l]];
            times[p].forward_ns += time_of(graph.forward, rates);
            times[p].backward_ns += time_of(graph.backward, rates);
        }
    }
    times.front().forward_ns += time_of(embedding_work(model, s, false), rates);
    times.front().backward_ns += time_of(embedding_work(model, s, true), rates);
    times.back().forward_ns += time_of(head_work(model, s, false), rates);
    times.back().backward_ns += time_of(head_work(model, s, true), rates);
    return times;
}

class iteration_list {
public:
    iteration_list(const model_profile &model, const step_settings &settings)
        : model_(model), settings_(settings), parts_(settings.pipeline_stages * settings.pipeline_chunks) {}

    void add_pass(const pipeline_pass &pass) {
        const size_t first = list_.size();
        const uint64_t part = pass.chunk * settings_.pipeline_stages + settings_.pipeline_stage;
        const layer_range range = layers_of_part(model_.layer_count(), parts_, part);
        pass.backward ? add_backward(pass, part, range) : add_forward(pass, part, range);
        list_[first].pipeline_wait_ns = pass.wait_ns;
    }

    std::vector<planned_iteration> take() {
        list_.push_back({iteration_kind::optimizer, true, 0, 0, settings_.micro_batches - 1, 0, 0, 0});
        return std::move(list_);
    }

private:
    void add(iteration_kind kind, const pipeline_pass &pass, uint32_t layer) {
        const bool is_layer = kind == iteration_kind::layer;
        const moved_parameters moved =
            is_layer ? moved_of_layer(model_, model_.mlp_of(layer), settings_) : moved_of_head(model_, settings_);
        // The head is still there when its backward begins, and the embedding's backward needs no weights.
        const double gathered = is_layer || !pass.backward ? moved.gathered : 0;
        list_.push_back({kind, pass.backward, layer, pass.chunk, pass.micro_batch, gathered,
                         pass.backward ? moved.scattered : 0, 0});
    }

    void add_forward(const pipeline_pass &pass, uint64_t part, const layer_range &range) {
        if (part == 0) {
            add(iteration_kind::embedding, pass, 0);
        }
        for (uint32_t l = range.begin; l < range.end; ++l) {
            add(iteration_kind::layer, pass, l);
        }
        if (part + 1 == parts_) {
            add(iteration_kind::head, pass, 0);
        }
    }

    void add_backward(const pipeline_pass &pass, uint64_t part, const layer_range &range) {
        if (part + 1 == parts_) {
            add(iteration_kind::head, pass, 0);
        }
        for (uint32_t l = range.end; l-- > range.begin;) {
            add(iteration_kind::layer, pass, l);
        }
        if (part == 0) {
            add(iteration_kind::embedding, pass, 0);
        }
    }

    const model_profile &model_;
    const step_settings &settings_;
    uint64_t parts_;
    std::vector<planned_iteration> list_;
};

// Calls `f` with every layer of the stage.
template <class F>
void for_each_layer(const model_profile &model, const step_settings &s, F f) {
    const uint64_t parts = s.pipeline_stages * s.pipeline_chunks;
    for (uint64_t chunk = 0; chunk < s.pipeline_chunks; ++chunk) {
        const layer_range range =
            layers_of_part(model.layer_count(), parts, chunk * s.pipeline_stages + s.pipeline_stage);
        for (uint32_t l = range.begin; l < range.end; ++l) {
            f(l);
        }
    }
}

double parameters_of_ends(const model_profile &model, const step_settings &s) {
    const bool first = s.pipeline_stage == 0;
    const bool last = s.pipeline_stage + 1 == s.pipeline_stages;
    // A tied matrix is needed at both ends.
    const double head = first ? head_parameters(model) : embedding_parameters(model);
    return (first ? embedding_parameters(model) : 0) + (last ? head : 0);
}

}  // namespace

layer_range layers_of_part(uint32_t layers, uint64_t parts, uint64_t part) noexcept {
    const uint64_t each = layers / parts;
    const uint64_t longer = layers % parts;
    const uint64_t begin = part * each + std::min(part, longer);
    return {static_cast<uint32_t>(begin), static_cast<uint32_t>(begin + each + (part < longer ? 1 : 0))};
}

step_layers make_step_layers(const model_profile &model, const step_settings &settings) {
    layer_shape shape;
    shape.tokens = settings.tokens();
    shape.sequence = static_cast<double>(settings.sequence);
    shape.activation_bytes = settings.activation_bytes;
    shape.weight_bytes = number_format_bytes(settings.gemm_format);
    shape.gradient_bytes = settings.gradient_bytes;
    shape.expert_shards = static_cast<double>(settings.expert_shards);
    shape.recompute_first = settings.recompute_first;
    step_layers layers;
    for (const model_profile::layer_group &group : model.layers) {
        const auto graph = static_cast<uint32_t>(layers.graphs.size());
        layers.graphs.push_back(make_layer_graph(model, group.mlp, shape));
        layers.graph_of_layer.insert(layers.graph_of_layer.end(), group.count, graph);
    }
    return layers;
}

std::vector<layer_work> embedding_work(const model_profile &model, const step_settings &s, bool backward) {
    const double row_bytes = s.tokens() * static_cast<double>(model.hidden) * s.activation_bytes;
    layer_work work;
    work.name = backward ? "embedding_gradient" : "embedding";
    work.hbm_bytes = backward ? 3 * row_bytes + embedding_parameters(model) * s.gradient_bytes : 2 * row_bytes;
    return {work};
}

std::vector<layer_work> head_work(const model_profile &model, const step_settings &s, bool backward) {
    const double tokens = s.tokens();
    const auto hidden = static_cast<double>(model.hidden);
    const auto vocabulary = static_cast<double>(model.vocabulary);
    const double weights = embedding_parameters(model);
    const layer_work product{
        "head", work_rate::gemm, 2 * tokens * hidden * vocabulary,
        tokens * (hidden * s.activation_bytes + vocabulary * k_logit_size) + weights * k_head_bytes, 0};
    const layer_work loss{"loss", work_rate::memory, 0, 3 * tokens * vocabulary * k_logit_size, 0};
    if (!backward) {
        return {product, loss};
    }
    layer_work input = product;
    input.name = "head_input_gradient";
    layer_work weight = product;
    weight.name = "head_weight_gradient";
    return {{"loss_gradient", work_rate::memory, 0, loss.hbm_bytes, 0}, input, weight};
}

// State is read and written, gradients (fp32) are read.
layer_work optimizer_work(double parameters, const step_settings &s) {
    constexpr double k_gradient_bytes = 4;
    return {"optimizer", work_rate::memory, 0, parameters * (2 * s.state_bytes + k_gradient_bytes), 0};
}

double parameters_held(const model_profile &model, const step_settings &s) noexcept {
    const auto shards = static_cast<double>(s.shards);
    const auto experts_over = std::max(shards, static_cast<double>(s.expert_shards));
    double sum = parameters_of_ends(model, s) / shards;
    for_each_layer(model, s, [&](uint32_t l) {
        const layer_parameters p = parameters_of_layer(model, model.mlp_of(l));
        sum += (p.attention + p.dense) / shards + p.routed_experts / experts_over;
    });
    return sum;
}

double gathered_parameters(const model_profile &model, const mlp_profile &mlp, const step_settings &s) noexcept {
    const layer_parameters p = parameters_of_layer(model, mlp);
    return p.attention + p.dense + p.routed_experts / static_cast<double>(s.expert_shards);
}

std::vector<planned_iteration> plan_iterations(const model_profile &model, const step_settings &s,
                                               const step_layers &layers, const step_rates &rates) {
    const pipeline_shape shape{s.pipeline_stages, s.pipeline_chunks, s.micro_batches};
    iteration_list list(model, s);
    for (const pipeline_pass &pass :
         pipeline_schedule(shape, s.pipeline_stage, times_of_parts(model, s, layers, rates))) {
        list.add_pass(pass);
    }
    return list.take();
}

}  // namespace ebb
