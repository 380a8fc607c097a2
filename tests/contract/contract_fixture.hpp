// What the contract's tests share: a device, and memory, streams and events on it that are given back at the end.
// Only pinned memory is touched by the host, so that a real GPU can be tested as well.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "contract_devices.hpp"

namespace ebb {

class contract : public ::testing::TestWithParam<contract_case> {
protected:
    struct held_memory {
        void *data;
        uint64_t size_bytes;
    };

    void TearDown() override {
        for (const stream_id stream : streams_) {
            EXPECT_TRUE(dev().destroy_stream(stream).ok());
        }
        for (const event_id event : events_) {
            EXPECT_TRUE(dev().destroy_event(event).ok());
        }
        for (const held_memory &block : device_memory_) {
            EXPECT_TRUE(dev().free_device(block.data, block.size_bytes).ok());
        }
        for (const held_memory &block : host_memory_) {
            EXPECT_TRUE(dev().unmap_host(block.data, block.size_bytes).ok());
        }
    }

    [[nodiscard]] device &dev() const { return stack_.top(); }
    [[nodiscard]] bool moves_bytes() const { return GetParam().moves_bytes; }
    [[nodiscard]] bool checks_arguments() const { return GetParam().checks_arguments; }
    [[nodiscard]] bool knows_events() const { return GetParam().knows_events; }
    [[nodiscard]] uint64_t memory_slack_bytes() const { return GetParam().memory_slack_bytes; }

    stream_id new_stream(stream_role role = stream_role::compute) {
        streams_.push_back(value_of(dev().create_stream(role)));
        return streams_.back();
    }
    event_id new_event(event_kind kind = event_kind::plain) {
        events_.push_back(value_of(dev().create_event(kind)));
        return events_.back();
    }
    unsigned char *new_device_memory(uint64_t size_bytes) {
        device_memory_.push_back({value_of(dev().alloc_device(size_bytes)), size_bytes});
        return static_cast<unsigned char *>(device_memory_.back().data);
    }
    unsigned char *new_host_memory(uint64_t size_bytes) {
        host_memory_.push_back({value_of(dev().map_host(size_bytes)), size_bytes});
        return static_cast<unsigned char *>(host_memory_.back().data);
    }

    // Pinned memory with bytes that follow from the seed; untouched where memory is not real.
    unsigned char *new_filled(uint64_t size_bytes, uint64_t seed) {
        unsigned char *data = new_host_memory(size_bytes);
        fill(data, size_bytes, seed);
        return data;
    }
    void fill(unsigned char *data, uint64_t size_bytes, uint64_t seed) const {
        if (!moves_bytes()) {
            return;
        }
        std::mt19937_64 random(seed);
        for (uint64_t at = 0; at < size_bytes; at += sizeof(uint64_t)) {
            const uint64_t word = random();
            std::memcpy(data + at, &word, std::min<uint64_t>(sizeof word, size_bytes - at));
        }
    }
    // Where checksums may go: memory that the device reaches. On a device whose memory is not real, some of the test's.
    uint64_t *new_sums(size_t count, uint64_t start) {
        if (!moves_bytes()) {
            sums_.emplace_back(count, start);
            return sums_.back().data();
        }
        auto *sums = reinterpret_cast<uint64_t *>(new_host_memory(count * sizeof(uint64_t)));
        std::fill(sums, sums + count, start);
        return sums;
    }
    // Where bytes do not move there is nothing to compare.
    [[nodiscard]] bool same(const void *a, const void *b, uint64_t size_bytes) const {
        return !moves_bytes() || std::memcmp(a, b, size_bytes) == 0;
    }

    // Keeps a stream from going on until what this gives back is called, so that an order that is missing shows. Where
    // streams do nothing there is nothing to keep.
    [[nodiscard]] std::function<void()> stand(stream_id stream) const {
        if (!stack_.block) {
            return [] {};
        }
        return stack_.block(stream);
    }
    // Waits for what is on the stream now.
    void finish(stream_id stream) {
        const event_id event = value_of(dev().create_event(event_kind::plain));
        ok(dev().record_event(event, stream));
        ok(dev().synchronize_event(event));
        EXPECT_TRUE(value_of(dev().event_done(event)));
        ok(dev().destroy_event(event));
    }

    static void ok(const status &done) { EXPECT_TRUE(done.ok()) << code_name(done.code()) << ": " << done.text(); }
    static void refused(const status &done, code expected) {
        EXPECT_EQ(code_name(done.code()), std::string(code_name(expected))) << done.text();
        EXPECT_FALSE(done.text().empty());
    }
    template <class T>
    static T value_of(result<T> made) {
        ok(made.why());
        return made.ok() ? std::move(made).value() : T{};
    }

    device_stack stack_ = GetParam().make();

private:
    std::vector<stream_id> streams_;
    std::vector<event_id> events_;
    std::vector<held_memory> device_memory_;
    std::vector<held_memory> host_memory_;
    std::deque<std::vector<uint64_t>> sums_;
};

}  // namespace ebb

#define EBB_CONTRACT_FOR_ALL_DEVICES(suite)                                              \
    INSTANTIATE_TEST_SUITE_P(devices, suite, ::testing::ValuesIn(ebb::contract_cases()), \
                             [](const auto &tested) { return tested.param.name; })
