#include "contract_fixture.hpp"

namespace ebb {
namespace {

using event_contract = contract;
constexpr uint64_t k_bytes = 2ULL << 20U;

TEST_P(event_contract, one_that_was_never_recorded_is_done_but_not_to_be_waited_for) {
    const event_id event = new_event();
    const stream_id stream = new_stream();
    EXPECT_TRUE(value_of(dev().event_done(event)));
    ok(dev().synchronize_event(event));
    if (knows_events()) {
        const status waited = dev().wait_event(stream, event);
        refused(waited, code::invalid_argument);
        EXPECT_NE(waited.text().find(std::to_string(static_cast<uint64_t>(event))), std::string::npos) << waited.text();
    }
}

TEST_P(event_contract, it_is_done_once_the_stream_got_there) {
    const stream_id stream = new_stream();
    const event_id event = new_event();
    const unsigned char *source = new_filled(k_bytes, 1);
    unsigned char *there = new_device_memory(k_bytes);
    unsigned char *back = new_host_memory(k_bytes);
    ok(dev().copy(stream, copy_direction::h2d, there, source, k_bytes));
    ok(dev().copy(stream, copy_direction::d2h, back, there, k_bytes));
    ok(dev().record_event(event, stream));
    ok(dev().synchronize_event(event));
    EXPECT_TRUE(value_of(dev().event_done(event)));
    EXPECT_TRUE(same(source, back, k_bytes));
}

TEST_P(event_contract, it_is_not_done_before) {
    if (!stack_.block) {
        EXPECT_FALSE(moves_bytes()) << "a device that moves bytes must be able to stand still";
        return;
    }
    const stream_id stream = new_stream();
    const stream_id other = new_stream();
    const event_id event = new_event(event_kind::timed);
    const event_id behind = new_event(event_kind::timed);
    const std::function<void()> let_go = stack_.block(stream);
    ok(dev().record_event(event, stream));
    ok(dev().wait_event(other, event));
    ok(dev().record_event(behind, other));
    EXPECT_FALSE(value_of(dev().event_done(event)));
    EXPECT_FALSE(value_of(dev().event_done(behind)));
    refused(dev().elapsed_ns(event, behind).why(), code::wrong_state);
    let_go();
    ok(dev().synchronize_event(behind));
    EXPECT_TRUE(value_of(dev().event_done(event)));
    ok(dev().elapsed_ns(event, behind).why());
}

TEST_P(event_contract, polling_gets_there_too) {
    const stream_id stream = new_stream();
    const event_id event = new_event();
    const unsigned char *source = new_filled(k_bytes, 2);
    unsigned char *there = new_device_memory(k_bytes);
    unsigned char *back = new_host_memory(k_bytes);
    ok(dev().copy(stream, copy_direction::h2d, there, source, k_bytes));
    ok(dev().copy(stream, copy_direction::d2h, back, there, k_bytes));
    ok(dev().record_event(event, stream));
    while (!value_of(dev().event_done(event))) {
    }
    EXPECT_TRUE(same(source, back, k_bytes));
}

TEST_P(event_contract, a_stream_waits_for_another) {
    const stream_id first = new_stream(stream_role::h2d);
    const stream_id second = new_stream(stream_role::d2h);
    const event_id written = new_event();
    const event_id read = new_event();
    constexpr uint64_t k_rounds = 50;
    const unsigned char *source = new_filled(k_bytes + k_rounds, 3);
    unsigned char *there = new_device_memory(k_bytes);
    unsigned char *back = new_host_memory(k_bytes * k_rounds);
    const std::function<void()> let_go = stand(first);
    for (uint64_t round = 0; round < k_rounds; ++round) {
        if (round > 0) {
            ok(dev().wait_event(first, read));
        }
        ok(dev().copy(first, copy_direction::h2d, there, source + round, k_bytes));
        ok(dev().record_event(written, first));
        ok(dev().wait_event(second, written));
        ok(dev().copy(second, copy_direction::d2h, back + round * k_bytes, there, k_bytes));
        ok(dev().record_event(read, second));
    }
    let_go();
    finish(second);
    for (uint64_t round = 0; round < k_rounds; ++round) {
        EXPECT_TRUE(same(back + round * k_bytes, source + round, k_bytes)) << "round " << round;
    }
}

// If the wait meant the later record, the two streams would wait for each other for good.
TEST_P(event_contract, a_wait_means_the_record_before_it) {
    const stream_id first = new_stream();
    const stream_id second = new_stream();
    const event_id again = new_event();
    const event_id passed = new_event();
    for (int round = 0; round < 100; ++round) {
        ok(dev().record_event(again, first));
        ok(dev().wait_event(second, again));
        ok(dev().record_event(passed, second));
        ok(dev().wait_event(first, passed));
        ok(dev().record_event(again, first));
    }
    ok(dev().synchronize_event(again));
    finish(second);
}

// Who waited before means the first stream, who waits afterwards the second one, and not both: otherwise the reader
// would stand as long as the first stream, for good.
TEST_P(event_contract, recording_again_on_another_stream_moves_it_there) {
    const stream_id first = new_stream();
    const stream_id second = new_stream();
    const stream_id early_reader = new_stream();
    const stream_id reader = new_stream();
    const event_id event = new_event();
    const event_id read_early = new_event();
    const unsigned char *source = new_filled(2 * k_bytes, 4);
    unsigned char *there = new_device_memory(2 * k_bytes);
    unsigned char *back = new_host_memory(2 * k_bytes);
    const std::function<void()> let_first_go = stand(first);
    const std::function<void()> let_second_go = stand(second);
    ok(dev().copy(first, copy_direction::h2d, there, source, k_bytes));
    ok(dev().record_event(event, first));
    ok(dev().wait_event(early_reader, event));
    ok(dev().copy(early_reader, copy_direction::d2h, back, there, k_bytes));
    ok(dev().record_event(read_early, early_reader));
    ok(dev().copy(second, copy_direction::h2d, there + k_bytes, source + k_bytes, k_bytes));
    ok(dev().record_event(event, second));
    ok(dev().wait_event(reader, event));
    ok(dev().copy(reader, copy_direction::d2h, back + k_bytes, there + k_bytes, k_bytes));
    let_second_go();
    finish(reader);
    EXPECT_TRUE(same(back + k_bytes, source + k_bytes, k_bytes));
    EXPECT_TRUE(value_of(dev().event_done(event)));
    EXPECT_EQ(value_of(dev().event_done(read_early)), !stack_.block);
    let_first_go();
    finish(early_reader);
    EXPECT_TRUE(same(back, source, k_bytes));
}

TEST_P(event_contract, a_stream_may_wait_for_itself_and_for_what_is_long_done) {
    const stream_id stream = new_stream();
    const event_id event = new_event();
    ok(dev().record_event(event, stream));
    ok(dev().wait_event(stream, event));
    finish(stream);
    ok(dev().wait_event(stream, event));
    finish(stream);
}

TEST_P(event_contract, many_wait_for_one_and_one_for_many) {
    constexpr uint64_t k_streams = 12;
    const stream_id producer = new_stream();
    const stream_id joined = new_stream(stream_role::join);
    const event_id start = new_event();
    const unsigned char *source = new_filled(k_bytes, 5);
    unsigned char *there = new_device_memory(k_bytes);
    unsigned char *copies = new_device_memory(k_bytes * k_streams);
    unsigned char *back = new_host_memory(k_bytes * k_streams);
    std::vector<std::pair<stream_id, event_id>> readers;
    for (uint64_t i = 0; i < k_streams; ++i) {
        readers.emplace_back(new_stream(), new_event());
    }
    const std::function<void()> let_go = stand(producer);
    ok(dev().copy(producer, copy_direction::h2d, there, source, k_bytes));
    ok(dev().record_event(start, producer));
    for (uint64_t i = 0; i < k_streams; ++i) {
        const auto [stream, done] = readers[i];
        ok(dev().wait_event(stream, start));
        ok(dev().copy(stream, copy_direction::d2d, copies + i * k_bytes, there, k_bytes));
        ok(dev().record_event(done, stream));
        ok(dev().wait_event(joined, done));
    }
    ok(dev().copy(joined, copy_direction::d2h, back, copies, k_bytes * k_streams));
    let_go();
    finish(joined);
    for (uint64_t i = 0; i < k_streams; ++i) {
        EXPECT_TRUE(same(back + i * k_bytes, source, k_bytes)) << "stream " << i;
    }
}

TEST_P(event_contract, thousands_on_one_stream) {
    constexpr size_t k_events = 5000;
    const stream_id stream = new_stream();
    std::vector<event_id> events;
    for (size_t i = 0; i < k_events; ++i) {
        events.push_back(new_event());
        ok(dev().record_event(events.back(), stream));
    }
    ok(dev().synchronize_event(events.back()));
    for (const event_id event : events) {
        EXPECT_TRUE(value_of(dev().event_done(event)));
    }
}

TEST_P(event_contract, destroying_one_leaves_pending_waits_alone) {
    constexpr uint64_t k_rounds = 30;
    const stream_id first = new_stream();
    const stream_id second = new_stream();
    const unsigned char *source = new_filled(k_bytes + k_rounds, 6);
    unsigned char *there = new_device_memory(k_bytes);
    unsigned char *back = new_host_memory(k_bytes * k_rounds);
    for (uint64_t round = 0; round < k_rounds; ++round) {
        const event_id written = value_of(dev().create_event(event_kind::plain));
        const event_id read = value_of(dev().create_event(event_kind::timed));
        ok(dev().copy(first, copy_direction::h2d, there, source + round, k_bytes));
        ok(dev().record_event(written, first));
        ok(dev().wait_event(second, written));
        ok(dev().destroy_event(written));
        ok(dev().copy(second, copy_direction::d2h, back + round * k_bytes, there, k_bytes));
        ok(dev().record_event(read, second));
        ok(dev().wait_event(first, read));
        ok(dev().destroy_event(read));
    }
    finish(second);
    finish(first);
    for (uint64_t round = 0; round < k_rounds; ++round) {
        EXPECT_TRUE(same(back + round * k_bytes, source + round, k_bytes)) << "round " << round;
    }
}

TEST_P(event_contract, a_destroyed_one_is_never_taken_for_a_later_one) {
    const stream_id stream = new_stream();
    const event_id gone = value_of(dev().create_event(event_kind::timed));
    ok(dev().record_event(gone, stream));
    ok(dev().destroy_event(gone));
    for (int i = 0; i < 5; ++i) {
        EXPECT_NE(new_event(event_kind::timed), gone);
    }
    if (!checks_arguments()) {
        return;
    }
    for (const event_id bad : {gone, event_id{0}, event_id{~uint64_t{0}}}) {
        for (const status &answer :
             {dev().destroy_event(bad), dev().record_event(bad, stream), dev().wait_event(stream, bad),
              dev().event_done(bad).why(), dev().synchronize_event(bad), dev().elapsed_ns(bad, bad).why()}) {
            refused(answer, code::invalid_argument);
            EXPECT_NE(answer.text().find(std::to_string(static_cast<uint64_t>(bad))), std::string::npos);
        }
    }
}

TEST_P(event_contract, timed_ones_go_forward) {
    const stream_id stream = new_stream();
    const event_id start = new_event(event_kind::timed);
    const event_id middle = new_event(event_kind::timed);
    const event_id end = new_event(event_kind::timed);
    const unsigned char *source = new_filled(k_bytes, 7);
    unsigned char *there = new_device_memory(k_bytes);
    ok(dev().record_event(start, stream));
    ok(dev().copy(stream, copy_direction::h2d, there, source, k_bytes));
    ok(dev().record_event(middle, stream));
    ok(dev().copy(stream, copy_direction::h2d, there, source, k_bytes));
    ok(dev().record_event(end, stream));
    ok(dev().synchronize_event(end));
    const uint64_t half = value_of(dev().elapsed_ns(start, middle));
    const uint64_t all = value_of(dev().elapsed_ns(start, end));
    EXPECT_GE(all, half);
    EXPECT_EQ(value_of(dev().elapsed_ns(start, start)), 0U);
    if (moves_bytes()) {
        EXPECT_GT(half, 0U);
        EXPECT_GT(all, half);
    }
}

TEST_P(event_contract, times_need_timed_events_that_are_done) {
    if (!knows_events()) {
        EXPECT_EQ(value_of(dev().elapsed_ns(new_event(), new_event())), 0U);
        return;
    }
    const stream_id stream = new_stream();
    const event_id plain = new_event();
    const event_id timed = new_event(event_kind::timed);
    const event_id never = new_event(event_kind::timed);
    ok(dev().record_event(plain, stream));
    ok(dev().record_event(timed, stream));
    finish(stream);
    refused(dev().elapsed_ns(plain, timed).why(), code::invalid_argument);
    refused(dev().elapsed_ns(timed, plain).why(), code::invalid_argument);
    refused(dev().elapsed_ns(timed, never).why(), code::invalid_argument);
    ok(dev().elapsed_ns(timed, timed).why());
}

EBB_CONTRACT_FOR_ALL_DEVICES(event_contract);

}  // namespace
}  // namespace ebb
