// No evaluation is below a lower bound, and more of anything never makes a fixed plan slower.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "schedule/bounds.hpp"
#include "schedule/evaluator.hpp"
#include "support/chain_models.hpp"
#include "support/random_models.hpp"

namespace ebb {
namespace {

using chains::chain;
using chains::population;

constexpr double k_rounding = 1e-9;

plan random_plan(population &draw, const step_model &m) {
    plan p;
    const double keep = draw.between(0, 1);
    const double recompute = draw.between(0, 1) * (1 - keep);
    for (const step_tensor &t : m.tensors) {
        const double x = draw.between(0, 1);
        p.placement.push_back(x < keep                                  ? tensor_placement::keep
                              : x < keep + recompute && t.can_recompute ? tensor_placement::recompute
                                                                        : tensor_placement::offload);
    }
    return p;
}

chain random_chain(population &draw) {
    switch (draw.whole(0, 3)) {
        case 0:
            return draw.uniform_realistic();
        case 1:
            return draw.uniform_independent();
        case 2:
            return draw.non_uniform(draw.whole(3, 40));
        default:
            return draw.tensor_like(draw.whole(3, 40));
    }
}

// Plans that fit are rare among random ones: also those that keep the latest.
plan some_plan(population &draw, const chain &c, const step_model &m) {
    plan p = random_plan(draw, m);
    if (draw.whole(0, 2) != 0) {
        double kept = 0;
        for (size_t i = c.layers.size(); i-- > 0;) {
            const bool keep = kept + c.layers[i].a <= c.budget;
            kept += keep ? c.layers[i].a : 0;
            const bool recompute = draw.whole(0, 2) == 0;
            p.placement[i] = keep        ? tensor_placement::keep
                             : recompute ? tensor_placement::recompute
                                         : tensor_placement::offload;
        }
    }
    return p;
}

TEST(schedule_bounds, no_evaluation_of_a_chain_is_below_its_bound) {
    population draw(101);
    int feasible = 0;
    for (int i = 0; i < 10000; ++i) {
        const chain c = random_chain(draw);
        const step_model m = chains::model_of(c);
        plan_budget b = c.planned_for();
        b.d2h.latency_ns = draw.whole(0, 1) == 0 ? 0 : draw.between(0, 1e5);
        evaluator e(m);
        const double bound_ns = step_bound(m, b).best_ns();
        for (int k = 0; k < 4; ++k) {
            const evaluation &got = e.evaluate(some_plan(draw, c, m), b);
            feasible += got.feasible ? 1 : 0;
            if (got.feasible) {
                ASSERT_GE(got.step_ns, bound_ns * (1 - k_rounding)) << "chain " << i;
            }
        }
    }
    EXPECT_GT(feasible, 10000);
}

TEST(schedule_bounds, no_evaluation_of_a_sequence_is_below_its_bound) {
    population draw(102);
    int feasible = 0;
    for (int i = 0; i < 10000; ++i) {
        const step_model m = random_sequence(draw);
        ASSERT_TRUE(evaluator::check(m).ok()) << evaluator::check(m).text();
        plan_budget b = random_budget(draw, m);
        plan p = random_plan(draw, m);
        p.staging_bytes = b.mode == memory_mode::staging
                              ? static_cast<uint64_t>(draw.between(0.1, 0.6) * static_cast<double>(b.device_bytes))
                              : 0;
        evaluator e(m);
        const evaluation &got = e.evaluate(p, b);
        feasible += got.feasible ? 1 : 0;
        if (got.feasible) {
            ASSERT_GE(got.step_ns, step_bound(m, b).best_ns() * (1 - k_rounding)) << "sequence " << i;
            ASSERT_LE(got.device_peak_bytes, b.device_bytes);
            ASSERT_NEAR(
                got.step_ns,
                got.compute_ns + got.recompute_ns + got.exposed_d2h_ns + got.exposed_h2d_ns + got.exposed_collective_ns,
                got.step_ns * k_rounding);
        }
    }
    EXPECT_GT(feasible, 2000);
}

TEST(schedule_bounds, more_memory_or_a_faster_link_or_layer_never_lengthens_a_step) {
    population draw(103);
    int compared = 0;
    for (int i = 0; i < 10000; ++i) {
        chain c = random_chain(draw);
        const step_model m = chains::model_of(c);
        const plan p = some_plan(draw, c, m);
        const plan_budget b = c.planned_for();
        evaluator before(m);
        const evaluation was = before.evaluate(p, b);
        if (!was.feasible) {
            continue;
        }
        ++compared;
        const auto longer = [&](const char *what, const plan_budget &other, const step_model &model) {
            evaluator after(model);
            const evaluation &is = after.evaluate(p, other);
            EXPECT_TRUE(is.feasible) << what << ", chain " << i;
            return is.step_ns > was.step_ns * (1 + k_rounding);
        };
        plan_budget more = b;
        more.device_bytes += static_cast<uint64_t>(draw.between(0, 2) * static_cast<double>(chains::k_unit_bytes));
        ASSERT_FALSE(longer("more memory", more, m)) << "more memory, chain " << i;
        plan_budget faster = b;
        faster.d2h.bytes_per_second *= draw.between(1, 2);
        ASSERT_FALSE(longer("faster D2H", faster, m)) << "faster D2H, chain " << i;
        faster = b;
        faster.h2d.bytes_per_second *= draw.between(1, 2);
        ASSERT_FALSE(longer("faster H2D", faster, m)) << "faster H2D, chain " << i;
        chains::layer &l = c.layers[draw.whole(0, c.layers.size() - 1)];
        l.f *= draw.between(0.5, 1);
        l.b *= draw.between(0.5, 1);
        l.r *= draw.between(0.5, 1);
        const step_model quicker = chains::model_of(c);
        ASSERT_FALSE(longer("faster layer", b, quicker)) << "faster layer, chain " << i;
    }
    EXPECT_GT(compared, 3000);
}

}  // namespace
}  // namespace ebb
