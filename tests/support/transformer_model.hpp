// A transformer's step by hand: layers of 20 saved tensors with the sizes, times and recompute dependences of a dense
// block, for tests and benchmarks of planning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/plan.hpp"
#include "schedule/step_model.hpp"

namespace ebb {

constexpr uint32_t k_layer_tensors = 20;

struct layer_tensor {
    const char *name;
    double size;       // of tokens x hidden x 2 bytes
    double forward;    // microseconds
    double recompute;  // microseconds, without what it is computed from
    bool can_recompute;
    std::vector<uint32_t> from;  // within the layer
};

inline const std::vector<layer_tensor> &transformer_layer() {
    static const std::vector<layer_tensor> tensors = {
        {"input", 1, 60, 0, false, {}},          {"norm1", 1, 60, 60, true, {0}},
        {"norm1_scale", 0.01, 2, 2, true, {0}},  {"query", 1, 900, 900, true, {1}},
        {"key", 0.125, 120, 120, true, {1}},     {"value", 0.125, 120, 120, true, {1}},
        {"query_rope", 1, 50, 50, true, {3}},    {"key_rope", 0.125, 8, 8, true, {4}},
        {"attention", 1, 1800, 1800, true, {}},  {"attention_stats", 0.02, 5, 5, false, {}},
        {"projection", 1, 900, 900, true, {8}},  {"residual", 1, 60, 60, true, {0, 10}},
        {"norm2", 1, 60, 60, true, {11}},        {"norm2_scale", 0.01, 2, 2, true, {11}},
        {"gate", 3.25, 3000, 3000, true, {12}},  {"up", 3.25, 3000, 3000, true, {12}},
        {"gate_silu", 3.25, 90, 90, true, {14}}, {"product", 3.25, 100, 100, true, {15, 16}},
        {"down", 1, 3000, 3000, true, {17}},     {"output", 1, 60, 0, false, {}},
    };
    return tensors;
}

// Everything of a layer that is recomputed is recomputed where its backward begins.
inline step_model transformer_model(uint32_t layers, uint64_t unit_bytes = uint64_t{128} << 20U) {
    const std::vector<layer_tensor> &kinds = transformer_layer();
    step_model m;
    for (uint32_t l = 0; l < layers; ++l) {
        for (const layer_tensor &k : kinds) {
            step_tensor t;
            t.name = k.name;
            t.layer = l;
            t.size_bytes = static_cast<uint64_t>(k.size * static_cast<double>(unit_bytes));
            t.can_recompute = k.can_recompute;
            t.recompute_ns = k.recompute * 1e3;
            for (const uint32_t from : k.from) {
                t.recompute_from.push_back(l * k_layer_tensors + from);
            }
            step_event work;
            work.time_ns = k.forward * 1e3;
            m.events.push_back(work);
            step_event produce;
            produce.what = step_event_kind::produce;
            produce.tensor = static_cast<uint32_t>(m.tensors.size());
            m.events.push_back(produce);
            m.tensors.push_back(t);
        }
    }
    for (uint32_t l = layers; l-- > 0;) {
        const auto place = static_cast<uint32_t>(m.events.size());
        for (uint32_t k = k_layer_tensors; k-- > 0;) {
            const uint32_t t = l * k_layer_tensors + k;
            m.tensors[t].recompute_at = place;
            step_event e;
            e.what = step_event_kind::use;
            e.tensor = t;
            m.events.push_back(e);
            step_event work;
            work.time_ns = kinds[k].forward * 2e3;
            m.events.push_back(work);
        }
        for (uint32_t k = 0; k < k_layer_tensors; ++k) {
            step_event release;
            release.what = step_event_kind::release;
            release.tensor = l * k_layer_tensors + k;
            m.events.push_back(release);
        }
    }
    return m;
}

}  // namespace ebb
