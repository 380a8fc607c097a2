// The evaluator against a closed form, and what holds for any plan.
#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/evaluator.hpp"
#include "support/chain_models.hpp"

namespace ebb {
namespace {

using chains::chain;
using chains::k_unit_ns;

// A uniform chain without recompute, the n earliest layers offloaded: the step beyond its compute is what the longest
// series of copies, or the first one alone, leaves behind.
double closed_form(const chain &c) {
    const auto layers = static_cast<double>(c.layers.size());
    const auto slots = static_cast<double>(c.slots);
    const double n = layers - slots;
    const double f = c.layers[0].f;
    const double b = c.layers[0].b;
    return layers * (f + b) + std::max({0.0, n * c.d - (layers - 2) * f, c.d - (slots - 1) * f}) +
           std::max({0.0, n * c.h - (layers - 2) * b, c.h - (slots - 1) * b});
}

TEST(schedule_evaluator, equals_the_closed_form_on_uniform_chains) {
    chains::population draw(1);
    for (int i = 0; i < 20000; ++i) {
        const uint64_t layers = draw.whole(3, 60);
        const uint64_t slots = draw.whole(2, layers - 1);
        const double b = draw.between(0.5, 4);
        const double d = draw.between(0.1, 6);
        const chain c = draw.uniform(layers, slots, b, d, draw.between(0.1, 6));
        const step_model m = chains::model_of(c);
        plan p;
        p.placement.assign(layers, tensor_placement::keep);
        std::fill_n(p.placement.begin(), layers - slots, tensor_placement::offload);
        evaluator e(m);
        const evaluation &got = e.evaluate(p, c.planned_for());
        ASSERT_TRUE(got.feasible) << "layers " << layers << " slots " << slots;
        ASSERT_NEAR(got.step_ns / k_unit_ns, closed_form(c), 1e-6) << "layers " << layers << " slots " << slots;
        ASSERT_EQ(got.device_peak_bytes, c.planned_for().device_bytes);
    }
}

}  // namespace
}  // namespace ebb
