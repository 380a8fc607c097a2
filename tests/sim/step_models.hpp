// Step models made of layers with several tensors each, whose passes run in any order of step_shapes.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "schedule/step_model.hpp"
#include "step_shapes.hpp"

namespace ebb::test {

struct layer_tensor {
    uint64_t size_bytes = 0;
    double forward_ns = 0;   // of the work that produces it
    double backward_ns = 0;  // of the work that uses it
    bool can_recompute = false;
    double recompute_ns = 0;
    bool from_the_one_before = false;  // which recomputing reads
};
using layer_shape = std::vector<layer_tensor>;

// Every pass runs through all layers; what one pass saves is used by the backward pass of the same micro-batch and
// stage, last first.
class step_model_maker {
public:
    explicit step_model_maker(const std::vector<layer_shape> &layers) : layers_(layers) {}

    step_model make(const std::vector<pass> &order) {
        for (const pass &p : order) {
            if (p.forward) {
                forward(p);
            } else {
                backward(p);
            }
        }
        return std::move(made_);
    }

private:
    void add(step_event_kind what, uint32_t tensor, double time_ns = 0) {
        step_event e;
        e.what = what;
        e.tensor = tensor;
        e.time_ns = time_ns;
        made_.events.push_back(e);
    }
    void forward(const pass &p) {
        const auto first = static_cast<uint32_t>(made_.tensors.size());
        first_[{p.micro_batch, p.stage}] = first;
        for (uint32_t l = 0; l < layers_.size(); ++l) {
            for (uint32_t k = 0; k < layers_[l].size(); ++k) {
                const layer_tensor &like = layers_[l][k];
                const auto number = static_cast<uint32_t>(made_.tensors.size());
                step_tensor t;
                t.name = "layer." + std::to_string(l) + "/t" + std::to_string(k);
                t.layer = l;
                t.micro_batch = p.micro_batch;
                t.stage = p.stage;
                t.size_bytes = like.size_bytes;
                t.can_recompute = like.can_recompute;
                t.recompute_ns = like.can_recompute ? like.recompute_ns : 0;
                if (like.can_recompute && like.from_the_one_before && number > first) {
                    t.recompute_from = {number - 1};
                }
                made_.tensors.push_back(t);
                add(step_event_kind::work, k_no_index, like.forward_ns);
                add(step_event_kind::produce, number);
            }
        }
    }
    void backward(const pass &p) {
        uint32_t number = first_[{p.micro_batch, p.stage}];
        for (const layer_shape &layer : layers_) {
            number += static_cast<uint32_t>(layer.size());
        }
        for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
            for (auto like = layer->rbegin(); like != layer->rend(); ++like) {
                --number;
                add(step_event_kind::use, number);
                add(step_event_kind::work, k_no_index, like->backward_ns);
                add(step_event_kind::release, number);
            }
        }
    }

    const std::vector<layer_shape> &layers_;
    step_model made_;
    std::map<std::pair<uint64_t, uint64_t>, uint32_t> first_;  // by micro-batch and stage: its first tensor
};

// The most bytes that are saved at one time.
inline uint64_t peak_saved_bytes(const step_model &model) {
    uint64_t live = 0, peak = 0;
    for (const step_event &e : model.events) {
        if (e.what == step_event_kind::produce) {
            live += model.tensors[e.tensor].size_bytes;
        } else if (e.what == step_event_kind::release) {
            live -= model.tensors[e.tensor].size_bytes;
        }
        peak = live > peak ? live : peak;
    }
    return peak;
}

}  // namespace ebb::test
