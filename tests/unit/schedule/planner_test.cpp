#include "schedule/planner.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/step_builder.hpp"
#include "support/transformer_model.hpp"

namespace ebb {
namespace {

step_builder chain_of(uint32_t layers, double recompute_ns = -1) {
    step_builder s;
    for (uint32_t i = 0; i < layers; ++i) {
        s.work(5).produce(10);
    }
    for (uint32_t i = layers; i-- > 0;) {
        s.backward(i, 5);
    }
    for (uint32_t t = 0; t < layers && recompute_ns >= 0; ++t) {
        s.recompute(t, recompute_ns);
    }
    return s;
}

planned made_for(const step_builder &s, const plan_budget &b) {
    return planner(s.model).make(b);
}

std::string letters(const plan &p) {
    std::string text;
    for (const tensor_placement where : p.placement) {
        text += where == tensor_placement::keep ? 'k' : where == tensor_placement::offload ? 'o' : 'r';
    }
    return text;
}

TEST(planner, keeps_all_that_fits) {
    const planned p = made_for(chain_of(5), budget_of(50));
    ASSERT_TRUE(p.feasible);
    EXPECT_EQ(letters(p.chosen), "kkkkk");
    EXPECT_DOUBLE_EQ(p.predicted.step_ns, 50);
    EXPECT_DOUBLE_EQ(p.gap(), 0);
    EXPECT_TRUE(p.keep_all.feasible);
}

TEST(planner, offloads_the_earliest_and_meets_the_bound) {
    const planned p = made_for(chain_of(3), budget_of(20, 0.8, 0.8));
    ASSERT_TRUE(p.feasible);
    EXPECT_EQ(letters(p.chosen), "okk");
    EXPECT_DOUBLE_EQ(p.predicted.step_ns, 36);
    EXPECT_DOUBLE_EQ(p.bound_ns, 36);
    EXPECT_FALSE(p.keep_all.feasible);
    EXPECT_FALSE(p.moving_nothing.feasible);
}

TEST(planner, recomputes_what_is_cheaper_than_moving) {
    const planned p = made_for(chain_of(3, 4), budget_of(20, 0.8, 0.8));
    ASSERT_TRUE(p.feasible);
    EXPECT_DOUBLE_EQ(p.predicted.step_ns, 34);
    EXPECT_DOUBLE_EQ(p.predicted.recompute_ns, 4);
    EXPECT_EQ(p.predicted.offloaded_bytes, 0U);
    ASSERT_TRUE(p.moving_nothing.feasible);
    EXPECT_DOUBLE_EQ(p.moving_nothing.step_ns, 34);
    EXPECT_DOUBLE_EQ(p.recompute_all.step_ns, 42);
}

TEST(planner, keeps_to_what_a_tensor_may_be) {
    step_builder s = chain_of(3, 4);
    s.model.tensors[0].can_offload = s.model.tensors[0].can_recompute = false;
    s.model.tensors[2].can_keep = s.model.tensors[2].can_offload = false;
    planned p = made_for(s, budget_of(20, 0.8, 0.8));
    ASSERT_TRUE(p.feasible);
    EXPECT_EQ(letters(p.chosen), "krr");  // beside two that are kept the third could not be computed
    s.model.tensors[1].can_keep = s.model.tensors[1].can_recompute = false;
    p = made_for(s, budget_of(20, 0.8, 0.8));
    ASSERT_TRUE(p.feasible);
    EXPECT_EQ(letters(p.chosen), "kor");
}

TEST(planner, stays_below_the_host_budget) {
    plan_budget b = budget_of(20, 0.1, 0.1);
    b.host_bytes = 15;
    const planned p = made_for(chain_of(4, 4), b);
    ASSERT_TRUE(p.feasible);
    EXPECT_LE(p.predicted.host_peak_bytes, 15U);
    EXPECT_DOUBLE_EQ(p.predicted.step_ns, 44);  // one is offloaded for nothing, one recomputed, two are kept
}

TEST(planner, sizes_staging) {
    const planned p = made_for(chain_of(12), budget_of(60, 0.3, 0.3, memory_mode::staging));
    ASSERT_TRUE(p.feasible);
    EXPECT_GE(p.chosen.staging_bytes, 10U);
    EXPECT_LE(p.predicted.device_peak_bytes, 60U);
    // The second of two slots hides every copy: 3 of 5 ns.
    EXPECT_DOUBLE_EQ(p.predicted.step_ns, 120);
}

TEST(planner, staging_that_is_given_stays) {
    plan_budget b = budget_of(60, 0.3, 0.3, memory_mode::staging);
    b.fixed_staging_bytes = 27;
    const planned p = made_for(chain_of(12), b);
    ASSERT_TRUE(p.feasible);
    EXPECT_EQ(p.chosen.staging_bytes, 27U);
    EXPECT_LE(p.predicted.device_peak_bytes, 60U);
    b.fixed_staging_bytes = 9;  // no slot for anything
    const planned none = made_for(chain_of(12), b);
    EXPECT_FALSE(none.feasible);
    EXPECT_EQ(none.smallest_feasible_bytes, 129U);  // all forwarded
}

TEST(planner, names_the_smallest_budget_for_one_that_is_too_small) {
    planned p = made_for(chain_of(4, 4), budget_of(9));
    EXPECT_FALSE(p.feasible);
    EXPECT_EQ(p.smallest_feasible_bytes, 10U);
    p = made_for(chain_of(4, 4), budget_of(19, 1, 1, memory_mode::staging));
    EXPECT_TRUE(p.feasible);  // recompute needs no staging
    p = made_for(chain_of(4), budget_of(19, 1, 1, memory_mode::staging));
    EXPECT_FALSE(p.feasible);
    EXPECT_EQ(p.smallest_feasible_bytes, 20U);
    EXPECT_TRUE(made_for(chain_of(4), budget_of(20, 1, 1, memory_mode::staging)).feasible);
    // More memory on the device does not help where there is none on the host and nothing else is possible.
    step_builder s = chain_of(2);
    s.model.tensors[0].can_keep = false;
    plan_budget b = budget_of(20);
    b.host_bytes = 5;
    p = made_for(s, b);
    EXPECT_FALSE(p.feasible);
    EXPECT_EQ(p.smallest_feasible_bytes, 0U);
}

TEST(planner, prices_of_what_is_scarce) {
    const step_builder s = chain_of(3);
    const plan_budget b = budget_of(20, 0.8, 0.8);
    planner p(s.model);
    const planned made = p.make(b);
    const shadow_prices prices = p.prices(made, b);
    // Each transfer takes 10 / 1.25 ns, all of its change exposed: 10 / 1.25^2 ns for a GB/s.
    EXPECT_NEAR(prices.d2h_seconds_per_gb_per_second, 6.4e-9, 0.01e-9);
    EXPECT_NEAR(prices.h2d_seconds_per_gb_per_second, 6.4e-9, 0.01e-9);
    EXPECT_GT(prices.device_seconds_per_gib, 0);
    const shadow_prices none = p.prices(p.make(budget_of(60)), budget_of(60));
    EXPECT_DOUBLE_EQ(none.device_seconds_per_gib, 0);
    EXPECT_DOUBLE_EQ(none.d2h_seconds_per_gb_per_second, 0);
    EXPECT_DOUBLE_EQ(none.h2d_seconds_per_gb_per_second, 0);
}

TEST(planner, a_transformer_in_both_memory_modes) {
    const step_model m = transformer_model(16);
    ASSERT_TRUE(evaluator::check(m).ok()) << evaluator::check(m).text();
    uint64_t total_bytes = 0;
    for (const step_tensor &t : m.tensors) {
        total_bytes += t.size_bytes;
    }
    for (const memory_mode mode : {memory_mode::one_pool, memory_mode::staging}) {
        const plan_budget b = budget_of(total_bytes / 2, 1 / 50.0, 1 / 50.0, mode);
        const planned p = planner(m).make(b);
        ASSERT_TRUE(p.feasible);
        EXPECT_LE(p.predicted.device_peak_bytes, b.device_bytes);
        ASSERT_TRUE(p.moving_nothing.feasible);
        EXPECT_LT(p.predicted.step_ns, p.moving_nothing.step_ns);
        EXPECT_LT(p.gap(), 0.02);
    }
}

TEST(planner, an_empty_step) {
    const planned p = made_for(step_builder{}, budget_of(0));
    EXPECT_TRUE(p.feasible);
    EXPECT_DOUBLE_EQ(p.predicted.step_ns, 0);
    EXPECT_DOUBLE_EQ(p.gap(), 0);
}

}  // namespace
}  // namespace ebb
