#include <algorithm>

#include "contract_fixture.hpp"

namespace ebb {
namespace {

using stream_contract = contract;
constexpr uint64_t k_bytes = (1ULL << 20U) + 24;

TEST_P(stream_contract, numbers_are_distinct_and_none_that_means_something_else) {
    std::vector<stream_id> streams;
    for (const stream_role role : {stream_role::compute, stream_role::d2h, stream_role::h2d, stream_role::join}) {
        streams.push_back(new_stream(role));
        EXPECT_GT(static_cast<uint64_t>(streams.back()), 2U);
        EXPECT_NE(streams.back(), k_calling_thread);
        ok(dev().check_stream(streams.back()));
    }
    std::sort(streams.begin(), streams.end());
    EXPECT_EQ(std::adjacent_find(streams.begin(), streams.end()), streams.end());
}

TEST_P(stream_contract, a_stream_does_its_work_in_order) {
    const stream_id stream = new_stream();
    constexpr uint64_t k_rounds = 40;
    unsigned char *there = new_device_memory(k_bytes);
    unsigned char *further = new_device_memory(k_bytes);
    const unsigned char *odd = new_filled(k_bytes, 1);
    const unsigned char *even = new_filled(k_bytes, 2);
    unsigned char *back = new_host_memory(k_bytes * 2);
    // Each round overwrites what the one before still has to read.
    for (uint64_t round = 0; round < k_rounds; ++round) {
        ok(dev().copy(stream, copy_direction::h2d, there, round % 2 == 0 ? even : odd, k_bytes));
        ok(dev().copy(stream, copy_direction::d2d, further, there, k_bytes));
        ok(dev().copy(stream, copy_direction::d2h, back + (round % 2) * k_bytes, further, k_bytes));
    }
    finish(stream);
    EXPECT_TRUE(same(back, even, k_bytes));
    EXPECT_TRUE(same(back + k_bytes, odd, k_bytes));
}

TEST_P(stream_contract, the_default_stream_is_a_stream) {
    ok(dev().check_stream(k_default_stream));
    unsigned char *there = new_device_memory(k_bytes);
    const unsigned char *source = new_filled(k_bytes, 3);
    unsigned char *back = new_host_memory(k_bytes);
    ok(dev().copy(k_default_stream, copy_direction::h2d, there, source, k_bytes));
    ok(dev().copy(k_default_stream, copy_direction::d2h, back, there, k_bytes));
    finish(k_default_stream);
    EXPECT_TRUE(same(back, source, k_bytes));
}

TEST_P(stream_contract, destroying_a_stream_loses_nothing) {
    unsigned char *there = new_device_memory(k_bytes);
    const unsigned char *source = new_filled(k_bytes, 4);
    unsigned char *back = new_host_memory(k_bytes);
    const event_id last = new_event();
    const stream_id stream = value_of(dev().create_stream(stream_role::join));
    for (int round = 0; round < 20; ++round) {
        ok(dev().copy(stream, copy_direction::h2d, there, source, k_bytes));
        ok(dev().copy(stream, copy_direction::d2h, back, there, k_bytes));
    }
    ok(dev().record_event(last, stream));
    ok(dev().destroy_stream(stream));
    ok(dev().synchronize_event(last));
    EXPECT_TRUE(same(back, source, k_bytes));
}

TEST_P(stream_contract, a_destroyed_stream_is_never_taken_for_a_later_one) {
    const event_id event = new_event();
    const stream_id gone = value_of(dev().create_stream(stream_role::compute));
    ok(dev().destroy_stream(gone));
    for (int i = 0; i < 5; ++i) {
        EXPECT_NE(new_stream(), gone);
    }
    if (checks_arguments()) {
        refused(dev().check_stream(gone), code::invalid_argument);
        refused(dev().record_event(event, gone), code::invalid_argument);
        refused(dev().destroy_stream(gone), code::invalid_argument);
    }
}

TEST_P(stream_contract, numbers_that_are_no_streams_are_refused_by_every_call_and_named) {
    const event_id event = new_event();
    ok(dev().record_event(event, new_stream()));
    unsigned char *there = new_device_memory(64);
    const unsigned char *source = new_filled(64, 5);
    uint64_t *sum = new_sums(1, 0);
    for (const uint64_t number : GetParam().bad_streams) {
        const stream_id bad{number};
        for (const status &answer :
             {dev().check_stream(bad), dev().record_event(event, bad), dev().wait_event(bad, event),
              dev().copy(bad, copy_direction::h2d, there, source, 64),
              dev().copy(bad, copy_direction::h2d, there, source, 0), dev().checksum(bad, source, 64, sum),
              dev().destroy_stream(bad)}) {
            refused(answer, code::invalid_argument);
            EXPECT_NE(answer.text().find(std::to_string(number)), std::string::npos) << answer.text();
        }
    }
    // The record that was refused has not taken the place of the one before.
    ok(dev().synchronize_event(event));
}

TEST_P(stream_contract, many_streams_at_once) {
    constexpr uint64_t k_streams = 24;
    const unsigned char *source = new_filled(k_bytes * k_streams, 6);
    unsigned char *there = new_device_memory(k_bytes * k_streams);
    unsigned char *back = new_host_memory(k_bytes * k_streams);
    std::vector<stream_id> streams;
    for (uint64_t i = 0; i < k_streams; ++i) {
        streams.push_back(new_stream(i % 2 == 0 ? stream_role::d2h : stream_role::h2d));
        const uint64_t at = i * k_bytes;
        ok(dev().copy(streams.back(), copy_direction::h2d, there + at, source + at, k_bytes));
        ok(dev().copy(streams.back(), copy_direction::d2h, back + at, there + at, k_bytes));
    }
    for (const stream_id stream : streams) {
        finish(stream);
    }
    EXPECT_TRUE(same(back, source, k_bytes * k_streams));
}

EBB_CONTRACT_FOR_ALL_DEVICES(stream_contract);

}  // namespace
}  // namespace ebb
