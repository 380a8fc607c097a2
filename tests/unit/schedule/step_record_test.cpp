#include "schedule/step_record.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "schedule/step_trace.hpp"

namespace ebb {
namespace {

constexpr uint64_t k_mib = uint64_t{1} << 20U;

struct saved {
    uint32_t name;
    uint64_t micro_batch = 0;
    uint64_t size_bytes = k_mib;
    uint32_t layer = 0;
    bool movable = true;
};

uint32_t produce(step_trace &trace, const saved &s) {
    const uint32_t id = trace.produce({s.name, s.micro_batch, 0}, s.layer, s.size_bytes, s.movable, true);
    trace.place(id, s.movable ? held_memory::source : held_memory::kept, k_no_index);
    return id;
}

// Saves in their order; uses and releases in reverse.
step_trace chain(const std::vector<saved> &all) {
    step_trace trace;
    std::vector<uint32_t> ids;
    for (const saved &s : all) {
        ids.push_back(produce(trace, s));
    }
    for (size_t i = ids.size(); i-- > 0;) {
        trace.use(ids[i], true);
        trace.release(ids[i]);
    }
    return trace;
}

std::vector<bool> given_up(const step_record &record) {
    std::vector<bool> all;
    for (const step_record::entry &e : record.entries()) {
        all.push_back(e.given_up_before_use);
    }
    return all;
}

TEST(step_record, a_chain_knows_its_uses) {
    step_record record;
    record.adopt(chain({{1}, {2}, {3}}));
    ASSERT_EQ(record.entries().size(), 3U);
    ASSERT_EQ(record.events().size(), 6U);
    EXPECT_EQ(record.first_use(), 3U);
    EXPECT_EQ(record.entries()[0].produced_at, 0U);
    EXPECT_EQ(record.entries()[0].first_use, 5U);
    EXPECT_EQ(record.entries()[2].first_use, 3U);
    EXPECT_EQ(record.events()[3].entry, 2U);
    EXPECT_EQ(record.events()[3].next_use, k_no_index);
}

TEST(step_record, younger_ones_are_those_produced_before_the_first_use) {
    step_record record;
    record.adopt(chain({{1}, {2, 0, k_mib, 0, false}, {3}, {4}}));
    EXPECT_EQ(record.entries()[0].younger, 2U) << "what cannot move does not count";
    EXPECT_EQ(record.entries()[1].younger, 2U);
    EXPECT_EQ(record.entries()[3].younger, 0U);
}

TEST(step_record, calls_with_one_key_are_occurrences_of_a_series) {
    step_trace trace;
    for (int i = 0; i < 3; ++i) {
        produce(trace, {7});
        produce(trace, {7, 1});
    }
    step_record record;
    record.adopt(trace);
    EXPECT_EQ(record.series_count(), 2U);
    const uint32_t series = record.find({7, 0, 0});
    ASSERT_NE(series, k_no_index);
    EXPECT_EQ(record.series_first()[series], 0U);
    EXPECT_EQ(record.entries()[0].next_occurrence, 2U);
    EXPECT_EQ(record.entries()[2].next_occurrence, 4U);
    EXPECT_EQ(record.entries()[4].next_occurrence, k_no_index);
    for (const uint32_t i : {0U, 2U, 4U}) {
        EXPECT_EQ(record.entries()[i].series, series);
    }
    EXPECT_NE(record.find({7, 1, 0}), series);
}

TEST(step_record, an_unknown_key_is_not_found) {
    step_record record;
    EXPECT_EQ(record.find({1, 0, 0}), k_no_index) << "nothing is recorded";
    record.adopt(chain({{1}}));
    EXPECT_NE(record.find({1, 0, 0}), k_no_index);
    EXPECT_EQ(record.find({2, 0, 0}), k_no_index);
    EXPECT_EQ(record.find({1, 1, 0}), k_no_index);
    EXPECT_EQ(record.find({1, 0, 1}), k_no_index);
}

TEST(step_record, several_uses_are_linked) {
    step_trace trace;
    const uint32_t a = produce(trace, {1});
    trace.use(a, true);
    trace.use(a, true);
    trace.use(a, true);
    step_record record;
    record.adopt(trace);
    EXPECT_EQ(record.entries()[0].first_use, 1U);
    EXPECT_EQ(record.events()[1].next_use, 2U);
    EXPECT_EQ(record.events()[2].next_use, 3U);
    EXPECT_EQ(record.events()[3].next_use, k_no_index);
}

TEST(step_record, a_layer_ends_where_the_next_ones_uses_begin) {
    step_record record;
    record.adopt(chain({{1, 0, k_mib, 10}, {2, 0, k_mib, 10}, {3, 0, k_mib, 20}, {4, 0, k_mib, 20}}));
    EXPECT_EQ(record.events()[4].layer_end, 6U);
    EXPECT_EQ(record.events()[5].layer_end, 6U);
    EXPECT_EQ(record.events()[6].layer_end, k_no_index);
}

TEST(step_record, the_peak_is_of_what_lives_at_once) {
    step_trace trace;
    const uint32_t a = produce(trace, {1, 0, 5 * k_mib});
    trace.use(a, true);
    trace.release(a);
    produce(trace, {2, 0, 3 * k_mib, 0, false});
    produce(trace, {3, 0, 4 * k_mib});
    step_record record;
    record.adopt(trace);
    EXPECT_EQ(record.peak_saved_bytes(), 7 * k_mib);
    EXPECT_EQ(record.largest_bytes(), 5 * k_mib);
    EXPECT_EQ(record.largest_movable_bytes(), 5 * k_mib);
}

TEST(step_record, adopting_again_forgets_the_first) {
    step_record record;
    record.adopt(chain({{1}, {2}, {3}}));
    record.adopt(chain({{4}}));
    EXPECT_EQ(record.entries().size(), 1U);
    EXPECT_EQ(record.find({1, 0, 0}), k_no_index);
    EXPECT_EQ(record.series_count(), 1U);
    EXPECT_EQ(record.peak_saved_bytes(), k_mib);
}

// Five of 1 MiB with room for three: the oldest are given up until the next fits, the last two are still there when
// backward asks.
TEST(step_record, the_forecast_gives_up_the_oldest_until_the_next_fits) {
    step_record record;
    record.adopt(chain({{1}, {2}, {3}, {4}, {5}}));
    step_record::budget b;
    b.device_bytes = 3 * k_mib;
    record.forecast(b);
    EXPECT_EQ(given_up(record), (std::vector<bool>{true, true, false, false, false}));
    b.device_bytes = 5 * k_mib;
    record.forecast(b);
    EXPECT_EQ(given_up(record), std::vector<bool>(5, false)) << "a forecast replaces the one before";
    b.device_bytes = k_mib;
    record.forecast(b);
    EXPECT_EQ(given_up(record), (std::vector<bool>{true, true, true, true, false}))
        << "for the last, nothing is produced next";
}

TEST(step_record, the_forecast_honours_the_cap_of_sources) {
    step_record record;
    record.adopt(chain({{1}, {2}, {3}}));
    step_record::budget b;
    b.source_cap_bytes = 0;
    record.forecast(b);
    EXPECT_EQ(given_up(record), std::vector<bool>(3, true));
    b.source_cap_bytes = 2 * k_mib;
    record.forecast(b);
    EXPECT_EQ(given_up(record), (std::vector<bool>{true, false, false}));
}

TEST(step_record, what_is_kept_counts_and_is_not_given_up) {
    step_record record;
    record.adopt(chain({{1, 0, 2 * k_mib, 0, false}, {2}, {3}}));
    step_record::budget b;
    b.device_bytes = 3 * k_mib;
    record.forecast(b);
    EXPECT_EQ(given_up(record), (std::vector<bool>{false, true, false}));
    b.device_bytes = 100 * k_mib;
    b.source_cap_bytes = 0;
    b.keep_last = 1;
    record.forecast(b);
    EXPECT_EQ(given_up(record), (std::vector<bool>{false, true, false})) << "the last one movable is kept";
}

// Two parts of one copy: they hold nothing of their own, share its fate, and it is there until the last of them ends.
TEST(step_record, a_view_shares_the_memory_and_the_fate_of_its_copy) {
    step_trace trace;
    const uint32_t whole = produce(trace, {1, 0, 4 * k_mib});
    const uint32_t part = trace.produce({2, 0, 0}, 0, 2 * k_mib, true, true);
    trace.place(part, held_memory::nothing, whole);
    const uint32_t next = produce(trace, {3, 0, 4 * k_mib});
    trace.use(next, true);
    trace.release(next);
    trace.use(whole, true);
    trace.release(whole);
    trace.use(part, true);
    trace.release(part);
    step_record record;
    record.adopt(trace);
    EXPECT_EQ(record.peak_saved_bytes(), 8 * k_mib);
    step_record::budget b;
    b.device_bytes = 8 * k_mib;
    record.forecast(b);
    EXPECT_EQ(given_up(record), std::vector<bool>(3, false));
    b.device_bytes = 7 * k_mib;
    record.forecast(b);
    EXPECT_EQ(given_up(record), (std::vector<bool>{true, true, false}));
}

TEST(step_record, what_is_computed_again_holds_nothing) {
    step_trace trace;
    const uint32_t again = trace.produce({1, 0, 0}, 0, 4 * k_mib, false, true);
    trace.place(again, held_memory::nothing, k_no_index);
    const uint32_t other = produce(trace, {2, 0, 4 * k_mib});
    trace.use(other, true);
    step_record record;
    record.adopt(trace);
    step_record::budget b;
    b.device_bytes = 4 * k_mib;
    record.forecast(b);
    EXPECT_FALSE(record.entries()[other].given_up_before_use);
}

// Read into the caller's own memory: the source is not handed back, and goes when room is needed.
TEST(step_record, a_use_without_a_claim_does_not_keep_the_source) {
    for (const bool claimed : {true, false}) {
        step_trace trace;
        const uint32_t first = produce(trace, {1});
        trace.use(first, claimed);
        produce(trace, {2});
        trace.use(first, true);
        step_record record;
        record.adopt(trace);
        step_record::budget b;
        b.device_bytes = k_mib;
        record.forecast(b);
        EXPECT_EQ(record.entries()[first].given_up_before_use, !claimed);
    }
}

TEST(step_record, later_steps_may_say_more) {
    step_record record;
    record.adopt(chain({{1}, {2}}));
    EXPECT_FALSE(record.learn(0, k_mib, true, held_memory::source, k_no_index));
    EXPECT_TRUE(record.learn(0, 3 * k_mib, true, held_memory::source, k_no_index));
    EXPECT_FALSE(record.learn(0, k_mib, true, held_memory::source, k_no_index)) << "the largest counts";
    EXPECT_TRUE(record.learn(1, k_mib, false, held_memory::kept, k_no_index));
    record.derive();
    EXPECT_EQ(record.largest_bytes(), 3 * k_mib);
    EXPECT_EQ(record.peak_saved_bytes(), 4 * k_mib);
}

// The third from the second, which is from the first: both are there from the use of the third on.
TEST(step_record, what_is_computed_again_for_another_holds_its_memory_from_there_on) {
    step_trace trace;
    std::vector<uint32_t> ids;
    for (const saved &s : {saved{1, 0, k_mib}, saved{2, 0, 2 * k_mib}, saved{3, 0, 4 * k_mib}}) {
        ids.push_back(produce(trace, s));
        if (s.name != 1) {
            trace.can_recompute(ids.back(), 1);
            trace.recompute_input(ids.back(), ids[ids.size() - 2]);
            trace.place(ids.back(), held_memory::nothing, k_no_index);
        }
    }
    for (size_t i = ids.size(); i-- > 0;) {
        trace.use(ids[i], i == 0);
        trace.release(ids[i]);
    }
    step_record record;
    record.adopt(trace);
    EXPECT_EQ(record.fixed_bytes(), (std::vector<uint64_t>{k_mib, 2 * k_mib, 4 * k_mib, 6 * k_mib, 2 * k_mib, 0}));
}

TEST(step_trace, compares_calls_and_not_sizes) {
    const step_trace one = chain({{1}, {2}});
    EXPECT_TRUE(one.same_calls(chain({{1, 0, 7 * k_mib}, {2}})));
    EXPECT_FALSE(one.same_calls(chain({{1}, {3}})));
    EXPECT_FALSE(one.same_calls(chain({{1}, {2, 1}})));
    EXPECT_FALSE(one.same_calls(chain({{1}})));
    step_trace other_order;
    const uint32_t a = produce(other_order, {1});
    const uint32_t b = produce(other_order, {2});
    other_order.use(a, true);
    other_order.use(b, true);
    EXPECT_FALSE(one.same_calls(other_order));
}

}  // namespace
}  // namespace ebb
