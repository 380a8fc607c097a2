#include "schedule/bounds.hpp"

#include <gtest/gtest.h>

#include "support/step_builder.hpp"

namespace ebb {
namespace {

// Three layers of 10 bytes, 5 ns each way.
step_builder three_equal_layers(double recompute_ns = -1) {
    step_builder s;
    s.work(5).produce(10).work(5).produce(10).work(5).produce(10);
    s.backward(2, 5).backward(1, 5).backward(0, 5);
    for (uint32_t t = 0; t < 3 && recompute_ns >= 0; ++t) {
        s.recompute(t, recompute_ns);
    }
    return s;
}

TEST(bounds, where_all_fits_the_bound_is_the_work) {
    EXPECT_DOUBLE_EQ(step_bound(three_equal_layers().model, budget_of(30)).best_ns(), 30);
}

TEST(bounds, what_does_not_fit_crosses_each_link_beside_the_work_between) {
    const step_builder s = three_equal_layers();
    // One of the three goes out while the second is computed, and in while the second is used: 5 of 8 ns hidden.
    EXPECT_DOUBLE_EQ(step_bound(s.model, budget_of(20, 0.8, 0.8)).best_ns(), 36);
    EXPECT_DOUBLE_EQ(step_bound(s.model, budget_of(20, 0.4, 0.8)).best_ns(), 33);
    // Equal layers move as a whole: 25 bytes hold no more of them than 20.
    EXPECT_DOUBLE_EQ(step_bound(s.model, budget_of(25, 0.8, 0.8)).best_ns(), 36);
    step_builder fixed = three_equal_layers();
    fixed.model.fixed_bytes = 100;
    EXPECT_DOUBLE_EQ(step_bound(fixed.model, budget_of(120, 0.8, 0.8)).best_ns(), 36);
}

TEST(bounds, recompute_instead_where_it_is_cheaper) {
    EXPECT_DOUBLE_EQ(step_bound(three_equal_layers(4).model, budget_of(20, 0.8, 0.8)).best_ns(), 34);
    EXPECT_DOUBLE_EQ(step_bound(three_equal_layers(7).model, budget_of(20, 0.8, 0.8)).best_ns(), 36);
    const step_builder s = three_equal_layers(4);
    EXPECT_DOUBLE_EQ(step_bound(s.model, budget_of(20, 0.8, 0.8)).at_recomputed_ns(0), 36);
    EXPECT_DOUBLE_EQ(step_bound(s.model, budget_of(20, 0.8, 0.8)).at_recomputed_ns(20), 38);
}

TEST(bounds, host_memory_that_is_missing_is_recomputed) {
    plan_budget b = budget_of(20, 0.1, 0.1);
    EXPECT_DOUBLE_EQ(step_bound(three_equal_layers(4).model, b).best_ns(), 30);
    b.host_bytes = 9;
    EXPECT_DOUBLE_EQ(step_bound(three_equal_layers(4).model, b).best_ns(), 34);
}

TEST(bounds, chunk_latency_is_part_of_a_transfer) {
    plan_budget b = budget_of(20, 0.6, 0.6);
    b.d2h.latency_ns = 1;
    b.d2h.chunk_bytes = 5;
    EXPECT_DOUBLE_EQ(step_bound(three_equal_layers().model, b).best_ns(), 34);  // 2 x 1 + 6 out, 6 in, 5 hidden each
}

TEST(bounds, different_sizes_move_in_parts) {
    step_builder s;
    s.work(5).produce(10).work(5).produce(9).work(5).produce(10);
    s.backward(2, 5).backward(1, 5).backward(0, 5);
    // 4 bytes too many, at 2 ns each.
    EXPECT_DOUBLE_EQ(step_bound(s.model, budget_of(25, 2, 2)).best_ns(), 36);
}

TEST(bounds, collectives_that_work_does_not_cover) {
    step_builder s;
    s.work(5).collective_begin(10).work(3).collective_end().work(1);
    const step_bound b(s.model, budget_of(0));
    EXPECT_DOUBLE_EQ(b.best_ns(), 16);
    EXPECT_DOUBLE_EQ(b.compute_ns(), 16);
}

}  // namespace
}  // namespace ebb
