// Chains of layers as step models, and the seeded populations that planning is measured on. A layer's size of 1 is
// k_unit_bytes, a time of 1 is k_unit_ns.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "schedule/plan.hpp"
#include "schedule/step_model.hpp"

namespace ebb::chains {

constexpr uint64_t k_unit_bytes = 1U << 20U;
constexpr double k_unit_ns = 1e6;

struct layer {
    double f = 1, b = 2, r = 1, a = 1;
};

struct chain {
    std::vector<layer> layers;
    double d = 1, h = 1;  // copy time of a size of 1
    double budget = 3;    // sizes
    uint64_t slots = 0;   // uniform ones: S
    bool can_recompute = true;

    [[nodiscard]] uint64_t size_bytes(size_t i) const {
        return static_cast<uint64_t>(std::llround(layers[i].a * static_cast<double>(k_unit_bytes)));
    }
    [[nodiscard]] plan_budget planned_for() const {
        plan_budget p;
        p.d2h.bytes_per_second = static_cast<double>(k_unit_bytes) * 1e9 / (d * k_unit_ns);
        p.h2d.bytes_per_second = static_cast<double>(k_unit_bytes) * 1e9 / (h * k_unit_ns);
        p.device_bytes = static_cast<uint64_t>(std::llround(budget * static_cast<double>(k_unit_bytes)));
        return p;
    }
};

inline step_event work(double time_ns) {
    step_event e;
    e.time_ns = time_ns;
    return e;
}

inline step_event call(step_event_kind what, uint32_t tensor = k_no_index) {
    step_event e;
    e.what = what;
    e.tensor = tensor;
    return e;
}

// Layer i forward: its work, then it saves i. Backward in reverse: use i, work, release i; recomputed at the use.
inline step_model model_of(const chain &c) {
    step_model m;
    const auto count = static_cast<uint32_t>(c.layers.size());
    for (uint32_t i = 0; i < count; ++i) {
        step_tensor t;
        t.name = "layer" + std::to_string(i);
        t.size_bytes = c.size_bytes(i);
        t.layer = i;
        t.can_recompute = c.can_recompute;
        t.recompute_ns = c.layers[i].r * k_unit_ns;
        m.tensors.push_back(t);
        m.events.push_back(work(c.layers[i].f * k_unit_ns));
        m.events.push_back(call(step_event_kind::produce, i));
    }
    for (uint32_t i = count; i-- > 0;) {
        m.events.push_back(call(step_event_kind::use, i));
        m.events.push_back(work(c.layers[i].b * k_unit_ns));
        m.events.push_back(call(step_event_kind::release, i));
    }
    return m;
}

class population {
public:
    explicit population(uint64_t seed) : random_(seed) {}

    double between(double low, double high) {
        return low + (high - low) * (static_cast<double>(random_() >> 11U) * 0x1p-53);
    }
    double log_between(double low, double high) { return std::exp(between(std::log(low), std::log(high))); }
    uint64_t whole(uint64_t low, uint64_t high) { return low + random_() % (high - low + 1); }

    chain uniform(uint64_t layers, uint64_t slots, double b, double d, double h) {
        chain c;
        c.layers.assign(layers, {1, b, 1, 1});
        c.slots = slots;
        c.budget = static_cast<double>(slots);
        c.d = d;
        c.h = h;
        return c;
    }
    chain uniform_realistic() {
        const uint64_t layers = whole(12, 60);
        const uint64_t slots = whole(3, layers - 1);
        const double b = between(1.6, 2.4);
        const double d = between(0.2, 3.5);
        return uniform(layers, slots, b, d, d * between(0.7, 1.1));
    }
    chain uniform_independent() {
        const uint64_t layers = whole(12, 60);
        const uint64_t slots = whole(3, layers - 1);
        const double b = between(0.5, 4);
        const double d = between(0.1, 6);
        return uniform(layers, slots, b, d, between(0.1, 6));
    }
    chain uniform_small(uint64_t layers) {
        const uint64_t slots = whole(3, 6);
        const double b = between(1.6, 2.4);
        const double d = between(0.3, 3.5);
        return uniform(layers, slots, b, d, d * between(0.7, 1.1));
    }
    chain non_uniform(uint64_t layers, double lowest_d = 0.2) {
        chain c;
        const double b = between(1.6, 2.4);
        for (uint64_t i = 0; i < layers; ++i) {
            layer l;
            l.f = between(0.5, 1.5);
            l.a = between(0.4, 1.6);
            l.b = b * l.f * between(0.9, 1.1);
            l.r = l.f * between(0.2, 1);
            c.layers.push_back(l);
        }
        finish(c, lowest_d);
        return c;
    }
    chain tensor_like(uint64_t layers) {
        chain c;
        const double b = between(1.6, 2.4);
        for (uint64_t i = 0; i < layers; ++i) {
            layer l;
            l.f = log_between(0.2, 2);
            l.a = log_between(0.15, 1.5);
            l.b = b * l.f;
            l.r = between(0, 1) < 0.3 ? 0.02 * l.f : l.f * between(0.3, 1);
            c.layers.push_back(l);
        }
        finish(c, 0.2);
        return c;
    }

private:
    void finish(chain &c, double lowest_d) {
        double sum = 0;
        double largest = 0;
        for (const layer &l : c.layers) {
            sum += l.a;
            largest = std::max(largest, l.a);
        }
        c.budget = std::max(2 * largest, between(0.25, 0.7) * sum);
        c.d = between(lowest_d, 3.5);
        c.h = c.d * between(0.7, 1.1);
    }

    std::mt19937_64 random_;
};

}  // namespace ebb::chains
