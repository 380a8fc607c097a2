#include "policy/step_outline.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "policy/baseline.hpp"

namespace ebb::baselines {

namespace {

bool is_of_mlp(const std::string &name) {
    return name.find("mlp") != std::string::npos || name.find("moe") != std::string::npos;
}

bool outline_moves(const built_step &step, uint32_t t) {
    const step_tensor &tensor = step.model.tensors[t];
    return step.save_set.placement[t] == tensor_placement::offload && tensor.can_offload &&
           tensor.size_bytes >= k_least_moved_bytes;
}

}  // namespace

step_outline::step_outline(const built_step &step) {
    list_layers(step);
    list_tensors(step);
    place_recomputes(step);
    order_uses(step);
    for (saved_layer &l : layers_) {
        l.first_used = l.moved;
        sort_by_use(l.first_used);
    }
    for (std::vector<uint32_t> &m : modules_) {
        last_of_module_.push_back(m.back());
        sort_by_use(m);
    }
}

uint32_t step_outline::longest_pass() const noexcept {
    return pass_size_.empty() ? 0 : *std::max_element(pass_size_.begin(), pass_size_.end());
}

// Layers that follow each other forward, of one micro-batch, are a pass.
void step_outline::list_layers(const built_step &step) {
    std::map<std::pair<uint64_t, uint32_t>, uint32_t> known;
    const step_iteration *before = nullptr;  // if it was a layer's forward
    for (const step_iteration &it : step.iterations) {
        of_iteration_.push_back(k_no_index);
        const bool is_forward = it.is_layer && !it.backward;
        const step_iteration *follows = std::exchange(before, is_forward ? &it : nullptr);
        if (!it.is_layer) {
            continue;
        }
        const std::pair<uint64_t, uint32_t> key{it.micro_batch, it.layer};
        if (it.backward) {
            of_iteration_.back() = known[key];
            continue;
        }
        if (follows == nullptr || follows->micro_batch != it.micro_batch || follows->layer + 1 != it.layer) {
            pass_start_.push_back(static_cast<uint32_t>(layers_.size()));
            pass_size_.push_back(0);
        }
        of_iteration_.back() = known[key] = static_cast<uint32_t>(layers_.size());
        saved_layer &made = layers_.emplace_back();
        made.pass = passes() - 1;
        made.position = pass_size_.back()++;
    }
}

void step_outline::list_tensors(const built_step &step) {
    of_tensor_.assign(step.model.tensors.size(), k_no_index);
    module_of_.assign(step.model.tensors.size(), k_no_index);
    allocated_at_.assign(step.model.events.size(), k_no_index);
    uint32_t begins_at = 0;  // behind the last event of a tensor, or at the last work since
    for (uint32_t i = 0; i < step.iterations.size(); ++i) {
        bool of_mlp = false;
        bool is_first = true;
        for (uint32_t e = step.iterations[i].begin; e < step.iterations[i].end; ++e) {
            const step_event &event = step.model.events[e];
            if (event.tensor == k_no_index) {
                begins_at = event.what == step_event_kind::work ? e : begins_at;
                continue;
            }
            if (event.what == step_event_kind::produce) {
                const uint32_t t = event.tensor;
                allocated_at_[begins_at] = t;
                of_tensor_[t] = of_iteration_[i];
                if (outline_moves(step, t)) {
                    layers_[of_iteration_[i]].moved.push_back(t);
                    const bool now_mlp = is_of_mlp(step.model.tensors[t].name);
                    if (std::exchange(is_first, false) || now_mlp != of_mlp) {
                        modules_.emplace_back();
                    }
                    of_mlp = now_mlp;
                    modules_.back().push_back(t);
                    module_of_[t] = static_cast<uint32_t>(modules_.size() - 1);
                }
            }
            begins_at = e + 1;
        }
    }
}

// Where it says, or at the first use; or before, with what is computed from it.
void step_outline::place_recomputes(const built_step &step) {
    const std::vector<step_tensor> &tensors = step.model.tensors;
    const auto is_recomputed = [&](uint32_t t) { return step.save_set.placement[t] == tensor_placement::recompute; };
    std::vector<uint32_t> place(tensors.size(), k_no_index);
    recomputed_at_.resize(step.model.events.size());
    for (uint32_t e = 0; e < step.model.events.size(); ++e) {
        const step_event &event = step.model.events[e];
        if (event.what == step_event_kind::use && place[event.tensor] == k_no_index) {
            const uint32_t at = tensors[event.tensor].recompute_at;
            place[event.tensor] = at == k_no_index ? e : at;
        }
    }
    for (auto t = static_cast<uint32_t>(tensors.size()); t-- > 0;) {
        if (!is_recomputed(t) || place[t] == k_no_index) {
            continue;
        }
        recomputed_at_[place[t]].push_back(t);
        for (const uint32_t from : tensors[t].recompute_from) {
            place[from] = is_recomputed(from) ? std::min(place[from], place[t]) : place[from];
        }
    }
    for (std::vector<uint32_t> &here : recomputed_at_) {
        std::reverse(here.begin(), here.end());
    }
}

void step_outline::order_uses(const built_step &step) {
    use_order_.assign(step.model.tensors.size(), k_no_index);
    uint32_t next = 0;
    const auto used = [&](uint32_t t) { use_order_[t] = use_order_[t] == k_no_index ? next++ : use_order_[t]; };
    for (uint32_t e = 0; e < step.model.events.size(); ++e) {
        for (const uint32_t t : recomputed_at_[e]) {
            for (const uint32_t from : step.model.tensors[t].recompute_from) {
                used(from);
            }
        }
        if (step.model.events[e].what == step_event_kind::use) {
            used(step.model.events[e].tensor);
        }
    }
}

void step_outline::sort_by_use(std::vector<uint32_t> &tensors) const {
    std::stable_sort(tensors.begin(), tensors.end(),
                     [this](uint32_t a, uint32_t b) { return use_order_[a] < use_order_[b]; });
}

}  // namespace ebb::baselines
