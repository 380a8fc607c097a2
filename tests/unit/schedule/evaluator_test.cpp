#include "schedule/evaluator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/counted_new.hpp"
#include "support/step_builder.hpp"

namespace ebb {
namespace {

using ::testing::HasSubstr;

evaluation evaluated(const step_builder &s, const plan &p, const plan_budget &b, plan_order *order = nullptr) {
    const status checked = evaluator::check(s.model);
    EXPECT_TRUE(checked.ok()) << checked.text();
    evaluator e(s.model);
    plan_order ignored;
    return e.evaluate(p, b, order != nullptr ? *order : ignored);
}

TEST(evaluator, kept_tensors_cost_memory_and_no_time) {
    step_builder s;
    s.work(5).produce(10).work(5).produce(20).backward(1, 7).backward(0, 7);
    s.model.fixed_bytes = 100;
    const evaluation e = evaluated(s, plan_of("kk"), budget_of(130));
    EXPECT_TRUE(e.feasible);
    EXPECT_DOUBLE_EQ(e.step_ns, 24);
    EXPECT_DOUBLE_EQ(e.compute_ns, 24);
    EXPECT_EQ(e.device_peak_bytes, 130U);
    EXPECT_EQ(e.host_peak_bytes, 0U);
    EXPECT_EQ(e.offloaded_bytes, 0U);
}

TEST(evaluator, says_how_much_is_missing_where_it_first_is) {
    step_builder s;
    s.work(5).produce(10).work(5).produce(20).backward(1, 7).backward(0, 7);
    const evaluation e = evaluated(s, plan_of("kk"), budget_of(28));
    EXPECT_FALSE(e.feasible);
    EXPECT_EQ(e.missing_bytes, 2U);
    EXPECT_EQ(e.missing_at, 3U);
    EXPECT_FALSE(e.missing_on_host);
    s.model.fixed_bytes = 30;
    EXPECT_EQ(evaluated(s, plan_of("kk"), budget_of(28)).missing_bytes, 2U);
}

// Three layers of 10 bytes in 20: the first is copied out in 8 ns and in again in 8 ns.
step_builder three_layers() {
    step_builder s;
    s.work(5).produce(10).work(5).produce(10).work(5).produce(10);
    s.backward(2, 5).backward(1, 5).backward(0, 5);
    return s;
}

TEST(evaluator, compute_waits_for_the_copy_of_a_source_before_its_memory_is_needed) {
    plan_order order;
    const evaluation e = evaluated(three_layers(), plan_of("okk"), budget_of(20, 0.8, 0.8), &order);
    ASSERT_TRUE(e.feasible);
    // Its copy ends at 5 + 8; the third layer would begin at 10. Its reload begins at 23, when the third is released,
    // and ends at 31; its backward would begin at 28.
    EXPECT_DOUBLE_EQ(e.exposed_d2h_ns, 3);
    EXPECT_DOUBLE_EQ(e.exposed_h2d_ns, 3);
    EXPECT_DOUBLE_EQ(e.step_ns, 36);
    EXPECT_EQ(e.device_peak_bytes, 20U);
    EXPECT_EQ(e.host_peak_bytes, 10U);
    EXPECT_EQ(order.given_up_at[0], 3U);  // the call that produces the second one
    EXPECT_EQ(order.prefetch_at[0], 8U);  // the call that releases the third one
}

TEST(evaluator, a_source_that_was_not_given_up_is_forwarded_and_stays_until_release) {
    plan_order order;
    const evaluation e = evaluated(three_layers(), plan_of("kko"), budget_of(30, 0.8, 0.8), &order);
    ASSERT_TRUE(e.feasible);
    EXPECT_EQ(e.offloaded_bytes, 10U);
    EXPECT_EQ(e.reloaded_bytes, 0U);
    EXPECT_EQ(order.given_up_at[2], k_no_index);
    EXPECT_EQ(order.prefetch_at[2], k_no_index);
    // Its memory may be reused behind its own copy alone: 15 + 8 against a release at 20.
    EXPECT_DOUBLE_EQ(e.exposed_d2h_ns, 3);
    EXPECT_DOUBLE_EQ(e.step_ns, 33);
}

TEST(evaluator, prefetches_do_not_overtake_and_pass_over_what_will_be_forwarded) {
    step_builder s;
    s.work(5).produce(2).work(5).produce(8).work(5).produce(6).work(5).produce(1);
    s.backward(3, 5).backward(2, 5).backward(1, 5).backward(0, 5);
    plan_order order;
    const evaluation e = evaluated(s, plan_of("ooko"), budget_of(9, 0.1, 0.1), &order);
    ASSERT_TRUE(e.feasible);
    EXPECT_EQ(order.prefetch_at[3], k_no_index);
    // 2 bytes are free from the first release on (event 10), but the 8 come first: event 13 releases the 6.
    EXPECT_EQ(order.prefetch_at[1], 13U);
    EXPECT_EQ(order.prefetch_at[0], 16U);
}

TEST(evaluator, prefetch_leaves_room_for_recomputes_before_its_use) {
    step_builder s;
    s.work(5).produce(5).work(5).produce(5).work(5).produce(6);
    s.recompute(1, 4);
    s.backward(2, 5).backward(1, 5).backward(0, 5);
    plan_order order;
    evaluation e = evaluated(s, plan_of("ork"), budget_of(10), &order);
    ASSERT_TRUE(e.feasible);
    EXPECT_EQ(order.prefetch_at[0], 8U);  // with the release of the third: 5 for it, 5 for the recompute
    EXPECT_DOUBLE_EQ(e.recompute_ns, 4);
    EXPECT_DOUBLE_EQ(e.step_ns, 34);
    e = evaluated(s, plan_of("ork"), budget_of(9), &order);
    ASSERT_TRUE(e.feasible);
    EXPECT_EQ(order.prefetch_at[0], 11U);
    EXPECT_LE(e.device_peak_bytes, 9U);
}

TEST(evaluator, recompute_reads_what_it_is_computed_from) {
    // t1 from t0, t2 from t1. Both recomputed: t1 is needed at t2's place, before its own use.
    step_builder s;
    s.work(5).produce(4).work(5).produce(2).work(5).produce(2).work(5);
    s.recompute(1, 3, {0}).recompute(2, 1, {1});
    s.backward(2, 5).backward(1, 5).backward(0, 5);
    evaluation e = evaluated(s, plan_of("krr"), budget_of(8));
    ASSERT_TRUE(e.feasible);
    EXPECT_DOUBLE_EQ(e.step_ns, 39);
    EXPECT_EQ(e.device_peak_bytes, 8U);  // all three are there in t2's backward
    EXPECT_FALSE(evaluated(s, plan_of("krr"), budget_of(7)).feasible);

    // The input offloaded: read for the recompute, and its slot stays, since the prefetch had passed its own use.
    e = evaluated(s, plan_of("orr"), budget_of(8));
    ASSERT_TRUE(e.feasible);
    EXPECT_EQ(e.reloaded_bytes, 0U);  // forwarded: nothing asked for its memory
    s = {};
    s.work(5).produce(4).work(5).produce(2).work(5).produce(8).work(5);
    s.recompute(1, 3, {0});
    s.backward(2, 5).backward(1, 5).backward(0, 5);
    plan_order order;
    e = evaluated(s, plan_of("ork"), budget_of(8), &order);
    ASSERT_TRUE(e.feasible);
    EXPECT_EQ(order.prefetch_at[0], 9U);
    EXPECT_EQ(e.reloaded_bytes, 4U);
    EXPECT_DOUBLE_EQ(e.exposed_h2d_ns, 4);
}

TEST(evaluator, recompute_begins_at_its_place) {
    step_builder s;
    s.work(5).produce(4).work(5).produce(4);
    s.use(1).work(5);
    const uint32_t place = s.next_event();
    s.work(5).release(1).work(2).backward(0, 5);
    s.recompute(0, 3);
    s.model.tensors[0].recompute_at = place;
    EXPECT_TRUE(evaluated(s, plan_of("rk"), budget_of(8)).feasible);
    EXPECT_EQ(evaluated(s, plan_of("rk"), budget_of(7)).missing_at, place);
    s.model.tensors[0].recompute_at = k_no_index;
    EXPECT_TRUE(evaluated(s, plan_of("rk"), budget_of(4)).feasible);
}

TEST(evaluator, staging_slots_take_the_bytes_that_were_freed_first) {
    // Five layers of 4 bytes; the last is kept, the others are reloaded into 8 bytes of staging, at 3 ns a byte.
    step_builder s;
    for (int i = 0; i < 5; ++i) {
        s.work(20).produce(4);
    }
    for (uint32_t i = 5; i-- > 0;) {
        s.backward(i, 5);
    }
    plan_order order;
    const evaluation e = evaluated(s, plan_of("ooook", 8), budget_of(16, 1, 3, memory_mode::staging), &order);
    ASSERT_TRUE(e.feasible);
    // 2 and 3 are given up for the fourth and fifth produce, and prefetched in forward already, where it is free.
    EXPECT_EQ(e.device_peak_bytes, 16U);
    EXPECT_EQ(order.given_up_at[3], k_no_index);  // 4 + 4 bytes of the framework's 8: forwarded
    EXPECT_EQ(order.prefetch_at[2], 7U);
    EXPECT_EQ(order.prefetch_at[1], 7U);
    // 2 and 1 arrive at 92 and 104 (from 80 on). The fifth and fourth are used until 110, 2 until 115, 1 until 120.
    // 0 takes the bytes of 2, freed at 115: there at 127, used from 127 to 132.
    EXPECT_DOUBLE_EQ(e.step_ns, 132);
    EXPECT_DOUBLE_EQ(e.exposed_h2d_ns, 7);
    EXPECT_EQ(evaluated(s, plan_of("ooook", 3), budget_of(16, 1, 3, memory_mode::staging)).missing_bytes, 1U);
    EXPECT_EQ(evaluated(s, plan_of("ooook", 20), budget_of(16, 1, 3, memory_mode::staging)).missing_bytes, 4U);
}

TEST(evaluator, micro_batches_of_1f1b_are_a_sequence_like_any_other) {
    // Two in flight: f0 f1 b0 f2 b1 b2; one tensor of 10 bytes each.
    step_builder s;
    s.work(10).produce(10).work(10).produce(10).backward(0, 20).work(10).produce(10).backward(1, 20).backward(2, 20);
    plan_order order;
    evaluation e = evaluated(s, plan_of("okk"), budget_of(20), &order);
    ASSERT_TRUE(e.feasible);
    EXPECT_DOUBLE_EQ(e.step_ns, 90);
    EXPECT_EQ(order.given_up_at[0], k_no_index);  // used before memory is short
    // Only 1 is offloaded. 0 is released before 2 is produced, and the release is the last call before it: 1 can stay.
    e = evaluated(s, plan_of("kok"), budget_of(20), &order);
    ASSERT_TRUE(e.feasible);
    EXPECT_EQ(order.given_up_at[1], k_no_index);
    EXPECT_DOUBLE_EQ(e.step_ns, 90);
    // Where 0 is used once more later, there is no release to wait for: 1 is given up at that use, its copy waited for.
    s = {};
    s.work(10).produce(10).work(10).produce(10).use(0).work(20).work(10).produce(10).backward(1, 20).backward(2, 20);
    s.release(0);
    e = evaluated(s, plan_of("kok"), budget_of(30), &order);
    ASSERT_TRUE(e.feasible);
    e = evaluated(s, plan_of("kok"), budget_of(29), &order);
    EXPECT_FALSE(e.feasible) << "0 and 2 are kept, and 1 comes back beside them";
}

TEST(evaluator, a_second_use_is_served_by_the_slot_if_the_prefetch_had_passed_it) {
    step_builder s;
    s.work(5).produce(4).work(5).produce(8).backward(1, 5);
    s.use(0).work(5).done(0).work(50).use(0).work(5).release(0);
    evaluation e = evaluated(s, plan_of("ok"), budget_of(8));
    ASSERT_TRUE(e.feasible);
    EXPECT_EQ(e.reloaded_bytes, 4U);
    // Between the two another one that is not prefetched yet stands in the queue's way: 0's slot is given back, and
    // 0 comes once more behind it.
    s = {};
    s.work(5).produce(4).work(5).produce(8).work(5).produce(8).backward(2, 5);
    s.use(0).work(5).done(0).work(50).backward(1, 5).use(0).work(5).release(0);
    e = evaluated(s, plan_of("ook"), budget_of(8));
    ASSERT_TRUE(e.feasible);
    EXPECT_EQ(e.reloaded_bytes, 16U);
    EXPECT_DOUBLE_EQ(e.recompute_ns, 0);
}

TEST(evaluator, collectives_run_beside_compute_one_after_the_other) {
    step_builder s;
    s.work(5).collective_begin(10).collective_begin(10).work(3).collective_end().work(1);
    const evaluation e = evaluated(s, plan{}, budget_of(0));
    ASSERT_TRUE(e.feasible);
    EXPECT_DOUBLE_EQ(e.step_ns, 26);
    EXPECT_DOUBLE_EQ(e.exposed_collective_ns, 17);
}

TEST(evaluator, chunks_cost_their_latency) {
    step_builder s;
    s.work(5).produce(10).backward(0, 5);
    plan_budget b = budget_of(10);
    b.d2h.latency_ns = 2;
    b.d2h.chunk_bytes = 4;
    EXPECT_DOUBLE_EQ(evaluated(s, plan_of("o"), b).step_ns, 21);  // released behind its copy: 5 + 3 x 2 + 10
}

TEST(evaluator, host_memory_is_a_limit) {
    plan_budget b = budget_of(20);
    b.host_bytes = 19;
    const evaluation e = evaluated(three_layers(), plan_of("ook"), b);
    EXPECT_FALSE(e.feasible);
    EXPECT_TRUE(e.missing_on_host);
    EXPECT_EQ(e.missing_bytes, 1U);
    b.host_bytes = 20;
    EXPECT_TRUE(evaluated(three_layers(), plan_of("ook"), b).feasible);
}

TEST(evaluator, a_search_is_told_early_what_is_too_slow) {
    const step_builder s = three_layers();
    const plan_budget b = budget_of(20, 0.8, 0.8);
    evaluator e(s.model);
    const evaluation *found = e.evaluate_below(plan_of("okk"), b, 36.5);
    ASSERT_NE(found, nullptr);
    EXPECT_DOUBLE_EQ(found->step_ns, 36);
    EXPECT_DOUBLE_EQ(e.share_run(), 1);
    EXPECT_EQ(e.evaluate_below(plan_of("okk"), b, 36), nullptr);
    EXPECT_EQ(e.evaluate_below(plan_of("okk"), b, 32), nullptr);  // 3 exposed in forward are too many
    EXPECT_LT(e.share_run(), 0.5);
    EXPECT_EQ(e.evaluate_below(plan_of("okk"), b, 30), nullptr);
    EXPECT_DOUBLE_EQ(e.share_run(), 0);
    EXPECT_EQ(e.evaluate_below(plan_of("kkk"), b, 100), nullptr);  // does not fit
}

TEST(evaluator, allocates_nothing_once_warm) {
    const step_builder s = three_layers();
    const plan p = plan_of("oko");
    const plan_budget b = budget_of(20);
    evaluator e(s.model);
    e.evaluate(p, b);
    const uint64_t before = test::allocation_count.load();
    e.evaluate(p, b);
    EXPECT_EQ(test::allocation_count.load(), before);
}

std::string why_not(const step_model &m) {
    return evaluator::check(m).text();
}

TEST(evaluator, check_names_what_is_wrong_with_a_model) {
    step_builder s = three_layers();
    s.model.events[4].time_ns = std::numeric_limits<double>::quiet_NaN();
    EXPECT_THAT(why_not(s.model), HasSubstr("event 4 (work)"));
    s = three_layers();
    s.model.events[1].tensor = 7;
    EXPECT_THAT(why_not(s.model), HasSubstr("tensor 7, but there are 3"));
    s.model.events[1].tensor = 1;
    EXPECT_THAT(why_not(s.model), HasSubstr("not the next one"));
    s = three_layers();
    s.use(1);
    EXPECT_THAT(why_not(s.model), HasSubstr("tensor 1 ('t1') was released at event 11"));
    s = three_layers();
    s.done(0);
    EXPECT_THAT(why_not(s.model), HasSubstr("released"));
    s = {};
    s.work(1).produce(1).done(0);
    EXPECT_THAT(why_not(s.model), HasSubstr("is not in use"));
    s = {};
    s.work(1).collective_end();
    EXPECT_THAT(why_not(s.model), HasSubstr("no collective was begun"));
    s = {};
    s.model.tensors.emplace_back();
    EXPECT_THAT(why_not(s.model), HasSubstr("no event produces it"));
    s = three_layers();
    s.recompute(1, 1, {2});
    EXPECT_THAT(why_not(s.model), HasSubstr("recompute_from 2"));
    s = three_layers();
    s.recompute(1, -1);
    EXPECT_THAT(why_not(s.model), HasSubstr("recompute_ns -1"));
    s = three_layers();
    s.model.tensors[1].recompute_at = 10;
    EXPECT_THAT(why_not(s.model), HasSubstr("recompute_at 10"));
    s = three_layers();
    s.model.tensors[1].can_keep = s.model.tensors[1].can_offload = false;
    EXPECT_THAT(why_not(s.model), HasSubstr("neither be kept nor offloaded nor recomputed"));
    s = {};
    s.work(1).produce(1).work(1).produce(1).backward(0, 1).backward(1, 1);
    s.recompute(1, 1, {0});
    EXPECT_THAT(why_not(s.model), HasSubstr("recomputed from tensor 0 ('t0'), which is released at event 6"));
}

}  // namespace
}  // namespace ebb
