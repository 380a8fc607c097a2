#include "transfer/timelines.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "stepped_device.hpp"

namespace ebb {
namespace {

constexpr stream_id k_a{101};
constexpr stream_id k_b{102};

class timelines_test : public testing::Test {
protected:
    ticket mark(stream_id stream) {
        ticket t;
        EXPECT_TRUE(lines_.mark(stream, t).ok());
        return t;
    }
    bool done(ticket t) {
        const result<bool> asked = lines_.done(t);
        EXPECT_TRUE(asked.ok());
        return asked.ok() && asked.value();
    }

    stepped_device device_;
    timelines lines_{device_};
};

TEST_F(timelines_test, later_points_cover_earlier_ones) {
    const ticket first = mark(k_a);
    const ticket second = mark(k_a);
    const ticket other = mark(k_b);
    EXPECT_EQ(first.timeline, second.timeline);
    EXPECT_LT(first.sequence, second.sequence);
    EXPECT_NE(first.timeline, other.timeline);
}

TEST_F(timelines_test, the_calling_thread_has_no_points) {
    EXPECT_TRUE(mark(k_calling_thread).empty());
    EXPECT_TRUE(lines_.wait(k_calling_thread, mark(k_a)).ok());
    EXPECT_TRUE(device_.waits.empty());
}

TEST_F(timelines_test, a_wait_names_the_points_own_record) {
    const ticket first = mark(k_a);
    mark(k_a);
    EXPECT_TRUE(lines_.wait(k_b, first).ok());
    EXPECT_EQ(device_.waits, (std::vector<stepped_device::wait>{{k_b, k_a, 1}}));
}

TEST_F(timelines_test, nothing_is_enqueued_for_what_is_no_wait) {
    const ticket point = mark(k_a);
    EXPECT_TRUE(lines_.wait(k_b, ticket{}).ok());
    EXPECT_TRUE(lines_.wait(k_a, point).ok()) << "a stream is behind its own points";
    device_.reach(k_a, 1);
    EXPECT_TRUE(lines_.poll().ok());
    EXPECT_TRUE(lines_.wait(k_b, point).ok()) << "known to be done";
    EXPECT_TRUE(device_.waits.empty());
}

TEST_F(timelines_test, a_stream_is_made_to_wait_once_for_a_point_of_ours) {
    const uint16_t ours = lines_.own(k_b).value();
    ticket early;
    ticket late;
    EXPECT_TRUE(lines_.mark_line(ours, early).ok());
    EXPECT_TRUE(lines_.mark_line(ours, late).ok());
    mark(k_a);  // or it is not known yet, and has nothing to remember that by
    EXPECT_TRUE(lines_.wait(k_a, early).ok());
    EXPECT_TRUE(lines_.wait(k_a, late).ok());
    EXPECT_TRUE(lines_.wait(k_a, late).ok());
    EXPECT_TRUE(lines_.wait(k_a, early).ok());
    EXPECT_EQ(device_.waits, (std::vector<stepped_device::wait>{{k_a, k_b, 1}, {k_a, k_b, 2}}));
}

TEST_F(timelines_test, what_comes_before_a_point_is_what_its_stream_waited_for_by_then) {
    const uint16_t ours = lines_.own(k_b).value();
    const auto before = [this](ticket t) {
        std::vector<uint64_t> sequences;
        lines_.each_before(t, [&](ticket b) { sequences.push_back(b.sequence); });
        return sequences;
    };
    const ticket first = mark(k_a);
    ticket point;
    EXPECT_TRUE(lines_.mark_line(ours, point).ok());
    EXPECT_TRUE(lines_.wait(k_a, point).ok());
    EXPECT_EQ(before(first), std::vector<uint64_t>{}) << "it was there before the wait";
    const ticket second = mark(k_a);
    EXPECT_EQ(before(second), std::vector<uint64_t>{1});
    EXPECT_TRUE(lines_.mark_line(ours, point).ok());
    EXPECT_TRUE(lines_.wait(k_a, point).ok());
    EXPECT_EQ(before(second), std::vector<uint64_t>{}) << "of each stream of ours only the latest wait is known";
    EXPECT_EQ(before(mark(k_a)), std::vector<uint64_t>{2});
}

// What a stream waited for is not what the stream waited for that has its timeline next.
TEST_F(timelines_test, a_timeline_that_serves_a_new_stream_is_behind_nothing) {
    const uint16_t ours = lines_.own(k_b).value();
    ticket point;
    EXPECT_TRUE(lines_.mark_line(ours, point).ok());
    std::set<uint64_t> numbers;
    bool again = false;
    for (uint64_t s = 0; s < 200; ++s) {
        const stream_id stream{1000 + s};
        const ticket first = mark(stream);
        again |= !numbers.insert(first.timeline).second;
        lines_.each_before(first, [](ticket) { ADD_FAILURE(); });
        device_.waits.clear();
        EXPECT_TRUE(lines_.wait(stream, point).ok());
        EXPECT_EQ(device_.waits.size(), 1U);
        mark(stream);
        device_.reach(stream, device_.recorded(stream));
    }
    EXPECT_TRUE(again);
}

TEST_F(timelines_test, timelines_of_captures_that_are_closed_serve_the_next) {
    std::set<uint64_t> numbers;
    ticket old;
    for (uint64_t c = 1; c <= 100; ++c) {
        lines_.open_capture(capture_id{c});
        ticket point;
        EXPECT_TRUE(lines_.mark_line(lines_.own(k_b, capture_id{c}).value(), point).ok());
        EXPECT_FALSE(lines_.known_done(point));
        EXPECT_TRUE(lines_.known_done(old));
        numbers.insert(point.timeline);
        lines_.close_capture(capture_id{c});
        old = point;
    }
    EXPECT_EQ(numbers.size(), 1U);
}

TEST_F(timelines_test, of_more_of_our_streams_than_are_remembered_the_oldest_is_forgotten) {
    mark(k_a);
    std::vector<ticket> points(6);
    for (uint64_t i = 0; i < points.size(); ++i) {
        EXPECT_TRUE(lines_.mark_line(lines_.own(stream_id{200 + i}).value(), points[i]).ok());
        EXPECT_TRUE(lines_.wait(k_a, points[i]).ok());
        mark(k_a);
    }
    std::set<uint64_t> known;
    lines_.each_before(mark(k_a), [&](ticket b) { known.insert(b.timeline); });
    EXPECT_EQ(known,
              (std::set<uint64_t>{points[2].timeline, points[3].timeline, points[4].timeline, points[5].timeline}));
    EXPECT_TRUE(lines_.wait(k_a, points[0]).ok());
    EXPECT_EQ(device_.waits.size(), 7U);
}

// A wait that the device refused orders nothing.
TEST_F(timelines_test, a_refused_wait_is_not_remembered) {
    const uint16_t ours = lines_.own(k_b).value();
    mark(k_a);
    ticket point;
    EXPECT_TRUE(lines_.mark_line(ours, point).ok());
    device_.refuse_waits = true;
    EXPECT_EQ(lines_.wait(k_a, point).code(), code::device_error);
    device_.refuse_waits = false;
    lines_.each_before(mark(k_a), [](ticket) { ADD_FAILURE(); });
    EXPECT_TRUE(lines_.wait(k_a, point).ok());
    EXPECT_EQ(device_.waits.size(), 1U);
}

TEST_F(timelines_test, a_refused_record_gives_no_point) {
    const ticket before = mark(k_a);
    device_.refuse_records = true;
    ticket t;
    EXPECT_EQ(lines_.mark(k_a, t).code(), code::device_error);
    device_.refuse_records = false;
    EXPECT_EQ(mark(k_a).sequence, before.sequence + 1);
}

// Twice more points than the first ring has events, and none of them done: each keeps its event.
TEST_F(timelines_test, points_in_flight_keep_their_events) {
    constexpr uint64_t k_points = 200;
    std::vector<ticket> points;
    for (uint64_t i = 0; i < k_points; ++i) {
        points.push_back(mark(k_a));
    }
    for (const ticket t : points) {
        EXPECT_TRUE(lines_.wait(k_b, t).ok());
    }
    ASSERT_EQ(device_.waits.size(), k_points);
    for (uint64_t i = 0; i < k_points; ++i) {
        EXPECT_EQ(device_.waits[i], (stepped_device::wait{k_b, k_a, i + 1}));
    }
}

TEST_F(timelines_test, events_of_points_that_are_over_are_used_again) {
    for (uint64_t i = 1; i <= 1000; ++i) {
        mark(k_a);
        device_.reach(k_a, i > 3 ? i - 3 : 0);
    }
    EXPECT_LE(device_.calls(call_kind::create_event), 64U);
}

class poll_boundary : public timelines_test, public testing::WithParamInterface<uint64_t> {};

// However far the stream has come, polling finds out exactly, and asks few times.
TEST_P(poll_boundary, is_found_exactly) {
    constexpr uint64_t k_points = 64;
    std::vector<ticket> points;
    for (uint64_t i = 0; i < k_points; ++i) {
        points.push_back(mark(k_a));
    }
    device_.reach(k_a, GetParam());
    const uint64_t before = device_.calls(call_kind::event_done);
    EXPECT_TRUE(lines_.poll().ok());
    EXPECT_LE(device_.calls(call_kind::event_done) - before, 8U);
    for (uint64_t i = 0; i < k_points; ++i) {
        EXPECT_EQ(lines_.known_done(points[i]), i + 1 <= GetParam()) << i;
    }
}

INSTANTIATE_TEST_SUITE_P(each, poll_boundary, testing::Values(0, 1, 2, 31, 32, 33, 62, 63, 64));

TEST_F(timelines_test, what_somebody_blocks_on_is_not_forgotten) {
    std::vector<ticket> points;
    for (int i = 0; i < 10; ++i) {
        points.push_back(mark(k_a));
    }
    const result<timelines::pinned_event> pinned = lines_.pin(points[4]);
    ASSERT_TRUE(pinned.ok());
    ASSERT_TRUE(pinned.value().needed);
    device_.reach(k_a, 10);
    EXPECT_TRUE(lines_.poll().ok());
    EXPECT_TRUE(lines_.known_done(points[3]));
    EXPECT_FALSE(lines_.known_done(points[4]));
    EXPECT_TRUE(done(points[9])) << "asked for itself, it is known";
    lines_.unpin(pinned.value());
    EXPECT_TRUE(lines_.poll().ok());
    EXPECT_TRUE(lines_.known_done(points[9]));
}

TEST_F(timelines_test, a_point_that_is_over_needs_no_blocking) {
    const ticket point = mark(k_a);
    device_.reach(k_a, 1);
    EXPECT_TRUE(done(point));
    const result<timelines::pinned_event> pinned = lines_.pin(point);
    ASSERT_TRUE(pinned.ok());
    EXPECT_FALSE(pinned.value().needed);
}

// Callers that make streams without end: the timelines of idle ones serve new ones, those of busy ones and ours do not.
TEST_F(timelines_test, idle_timelines_serve_new_streams) {
    const result<uint16_t> owned = lines_.own(k_a);
    ASSERT_TRUE(owned.ok());
    const ticket busy = mark(k_b);
    std::set<uint64_t> numbers;
    std::vector<ticket> old;
    for (uint64_t s = 0; s < 500; ++s) {
        const stream_id stream{1000 + s};
        old.push_back(mark(stream));
        device_.reach(stream, device_.recorded(stream));
        numbers.insert(old.back().timeline);
        EXPECT_NE(old.back().timeline, owned.value());
        EXPECT_NE(old.back().timeline, busy.timeline);
    }
    EXPECT_LE(numbers.size(), 64U);
    for (const ticket t : old) {
        EXPECT_TRUE(done(t)) << "points of streams that are gone stay done";
    }
    EXPECT_FALSE(done(busy));
}

TEST_F(timelines_test, a_set_that_is_full_is_folded_into_one_point) {
    ticket_set set;
    std::vector<stream_id> streams;
    for (uint64_t s = 0; s <= ticket_set::k_capacity; ++s) {
        streams.push_back(stream_id{200 + s});
        EXPECT_TRUE(lines_.add(set, mark(streams.back())).ok());
    }
    ASSERT_EQ(set.size(), 1U);
    std::set<stream_id> behind;
    for (const stepped_device::wait &w : device_.waits) {
        behind.insert(w.on);
    }
    EXPECT_EQ(behind, std::set<stream_id>(streams.begin(), streams.end())) << "the join waits for each of them";
    device_.waits.clear();
    EXPECT_TRUE(lines_.wait(k_a, set).ok());
    ASSERT_EQ(device_.waits.size(), 1U);
    EXPECT_EQ(device_.waits[0].stream, k_a);
    EXPECT_EQ(behind.count(device_.waits[0].on), 0U) << "on a stream of ours";
}

TEST_F(timelines_test, synchronize_blocks_on_what_is_not_known_to_be_done) {
    const ticket point = mark(k_a);
    EXPECT_TRUE(lines_.synchronize(point).ok());
    EXPECT_TRUE(lines_.synchronize(point).ok());
    EXPECT_EQ(device_.synchronized, std::vector<stream_id>{k_a});
    mark(k_b);
    EXPECT_TRUE(lines_.synchronize_all().ok());
    EXPECT_EQ(device_.synchronized, (std::vector<stream_id>{k_a, k_b}));
}

}  // namespace
}  // namespace ebb
