// Small steps for the baselines, by hand: layers of a few saved tensors, whose times and sizes are easy to follow. A
// unit of time is a millisecond, a size is in MiB, and a link of rate r moves r MiB per millisecond.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/sim/sim_machine.hpp"
#include "model/step_builder.hpp"
#include "policy/baseline.hpp"

namespace ebb::baselines {

constexpr double k_unit_ns = 1e6;
constexpr uint64_t k_mib = uint64_t{1} << 20U;

struct piece {
    double forward = 1;   // work before it is saved
    uint64_t mib = 1;     // its size
    double backward = 1;  // work from its use to its release
};

struct chain_layer {
    std::vector<piece> pieces;
    double forward_tail = 0;   // work behind the last one
    double backward_lead = 0;  // work before the first use
};

// Forward, two iterations of a head if it takes time, backward. Everything is to be offloaded.
inline built_step chain_step(const std::vector<chain_layer> &layers, double head = 0) {
    built_step step;
    const auto add = [&](step_event_kind what, uint32_t tensor, double time) {
        step_event e;
        e.what = what;
        e.tensor = tensor;
        e.time_ns = time * k_unit_ns;
        step.model.events.push_back(e);
    };
    const auto work = [&](double time) {
        if (time > 0) {
            add(step_event_kind::work, k_no_index, time);
        }
    };
    const auto iteration = [&](bool is_layer, bool backward, uint32_t layer, const auto &body) {
        step_iteration it;
        it.is_layer = is_layer;
        it.backward = backward;
        it.layer = layer;
        it.begin = static_cast<uint32_t>(step.model.events.size());
        body();
        it.end = static_cast<uint32_t>(step.model.events.size());
        step.iterations.push_back(it);
    };
    std::vector<uint32_t> first;
    for (uint32_t l = 0; l < layers.size(); ++l) {
        first.push_back(static_cast<uint32_t>(step.model.tensors.size()));
        iteration(true, false, l, [&] {
            for (const piece &p : layers[l].pieces) {
                step_tensor t;
                t.name = "layer." + std::to_string(l) + "/t" + std::to_string(step.model.tensors.size() - first[l]);
                t.layer = l;
                t.size_bytes = p.mib * k_mib;
                add(step_event_kind::work, k_no_index, p.forward);
                add(step_event_kind::produce, static_cast<uint32_t>(step.model.tensors.size()), 0);
                step.model.tensors.push_back(t);
                step.save_set.placement.push_back(tensor_placement::offload);
                step.role.push_back(tensor_role::saved);
            }
            work(layers[l].forward_tail);
        });
    }
    for (int i = 0; i < 2 && head > 0; ++i) {
        iteration(false, i == 1, 0, [&] { add(step_event_kind::work, k_no_index, head); });
    }
    for (auto l = static_cast<uint32_t>(layers.size()); l-- > 0;) {
        iteration(true, true, l, [&] {
            work(layers[l].backward_lead);
            for (auto i = static_cast<uint32_t>(layers[l].pieces.size()); i-- > 0;) {
                add(step_event_kind::use, first[l] + i, 0);
                add(step_event_kind::work, k_no_index, layers[l].pieces[i].backward);
                add(step_event_kind::release, first[l] + i, 0);
            }
        });
    }
    return step;
}

// One tensor of a MiB per layer.
inline built_step plain_chain(uint32_t layers, double forward, double backward) {
    return chain_step(std::vector<chain_layer>(layers, {{{forward, 1, backward}}, 0, 0}));
}

// A MiB takes that long in each direction.
inline sim_machine machine_with(double out, double in) {
    sim_machine m;
    m.host_bytes = uint64_t{1} << 40U;
    m.d2h.bytes_per_second = static_cast<double>(k_mib) * 1e9 / (out * k_unit_ns);
    m.h2d.bytes_per_second = static_cast<double>(k_mib) * 1e9 / (in * k_unit_ns);
    return m;
}

constexpr uint64_t k_no_limit = uint64_t{1} << 50U;

}  // namespace ebb::baselines
