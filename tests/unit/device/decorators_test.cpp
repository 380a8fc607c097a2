#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "device/fault/fault_device.hpp"
#include "device/host/host_device.hpp"
#include "device/null/null_device.hpp"
#include "device/trace/trace_device.hpp"

namespace ebb {
namespace {

constexpr uint64_t k_mib = 1ULL << 20U;

host_device_options small_host() {
    host_device_options options;
    options.capacity_bytes = 8 * k_mib;
    return options;
}

// ---------------------------------------------------------------------------------------------------- fault --

class fault : public ::testing::Test {
protected:
    bool copy_out(uint64_t size_bytes = k_mib) {
        return dev_.copy(stream_, copy_direction::d2h, here_, there_, size_bytes).ok();
    }
    host_device host_{small_host()};
    fault_device dev_{host_};
    stream_id stream_ = dev_.create_stream(stream_role::d2h).value();
    unsigned char *there_ = static_cast<unsigned char *>(dev_.alloc_device(k_mib).value());
    unsigned char *here_ = static_cast<unsigned char *>(dev_.map_host(k_mib).value());
    event_id event_ = dev_.create_event(event_kind::plain).value();
};

TEST_F(fault, refuses_the_nth_call_of_a_kind_and_no_other) {
    dev_.refuse(call_kind::copy, 3);
    EXPECT_TRUE(copy_out());
    EXPECT_TRUE(dev_.record_event(event_, stream_).ok());
    EXPECT_TRUE(copy_out());
    const status refused = dev_.copy(stream_, copy_direction::d2h, here_, there_, k_mib);
    EXPECT_EQ(refused.code(), code::device_error);
    EXPECT_NE(refused.text().find("copy"), std::string::npos);
    EXPECT_TRUE(copy_out());
    EXPECT_EQ(dev_.calls(call_kind::copy), 4U);
    EXPECT_EQ(dev_.refused(call_kind::copy), 1U);
    EXPECT_EQ(dev_.refused(call_kind::record_event), 0U);
}

TEST_F(fault, refuses_from_the_nth_call_on_until_cleared) {
    dev_.refuse(call_kind::alloc_device, 1, fault_device::k_for_good);
    EXPECT_EQ(dev_.alloc_device(512).why().code(), code::out_of_device_memory);
    EXPECT_EQ(dev_.alloc_device(512).why().code(), code::out_of_device_memory);
    dev_.clear();
    EXPECT_TRUE(dev_.alloc_device(512).ok());
    dev_.refuse(call_kind::map_host);
    EXPECT_EQ(dev_.map_host(512).why().code(), code::out_of_host_memory);
    dev_.refuse(call_kind::create_stream, 1, 1, code::unsupported);
    EXPECT_EQ(dev_.create_stream(stream_role::join).why().code(), code::unsupported);
}

TEST_F(fault, refuses_at_random_by_seed_and_number_of_the_call) {
    constexpr int k_calls = 2000;
    const auto refusals = [this](uint64_t seed, double probability, bool others_between) {
        null_device inner;
        fault_device dev(inner);
        dev.refuse_at_random(call_kind::record_event, probability, seed);
        std::vector<bool> refused;
        for (int i = 0; i < k_calls; ++i) {
            refused.push_back(!dev.record_event(event_, stream_).ok());
            if (others_between) {
                EXPECT_TRUE(dev.wait_event(stream_, event_).ok());
            }
        }
        return refused;
    };
    const std::vector<bool> once = refusals(7, 0.1, false);
    EXPECT_EQ(once, refusals(7, 0.1, true));
    EXPECT_NE(once, refusals(8, 0.1, false));
    const auto count = std::count(once.begin(), once.end(), true);
    EXPECT_NEAR(static_cast<double>(count), 200, 60);
    EXPECT_EQ(refusals(7, 1, false), std::vector<bool>(k_calls, true));
    EXPECT_EQ(refusals(7, 0, false), std::vector<bool>(k_calls, false));
    dev_.refuse_at_random(call_kind::copy, 1, 1);
    EXPECT_FALSE(copy_out());
    EXPECT_EQ(dev_.refused(call_kind::copy), 1U);
    dev_.clear();
    EXPECT_TRUE(copy_out());
}

TEST_F(fault, can_refuse_every_kind_of_call) {
    uint64_t sum = 0;
    const auto answer_of = [&](call_kind kind) -> status {
        switch (kind) {
            case call_kind::alloc_device:
                return dev_.alloc_device(512).why();
            case call_kind::free_device:
                return dev_.free_device(there_, k_mib);
            case call_kind::map_host:
                return dev_.map_host(512).why();
            case call_kind::unmap_host:
                return dev_.unmap_host(here_, k_mib);
            case call_kind::create_stream:
                return dev_.create_stream(stream_role::join).why();
            case call_kind::destroy_stream:
                return dev_.destroy_stream(stream_);
            case call_kind::create_event:
                return dev_.create_event(event_kind::plain).why();
            case call_kind::destroy_event:
                return dev_.destroy_event(event_);
            case call_kind::record_event:
                return dev_.record_event(event_, stream_);
            case call_kind::wait_event:
                return dev_.wait_event(stream_, event_);
            case call_kind::event_done:
                return dev_.event_done(event_).why();
            case call_kind::synchronize_event:
                return dev_.synchronize_event(event_);
            case call_kind::elapsed:
                return dev_.elapsed_ns(event_, event_).why();
            case call_kind::copy:
                return dev_.copy(stream_, copy_direction::d2h, here_, there_, k_mib);
            case call_kind::checksum:
                return dev_.checksum(stream_, here_, k_mib, &sum);
        }
        return {};
    };
    for (size_t kind = 0; kind < k_call_kinds; ++kind) {
        const auto refused = static_cast<call_kind>(kind);
        dev_.refuse(refused, 1, 1, code::internal);
        EXPECT_EQ(answer_of(refused).code(), code::internal) << call_kind_name(refused);
        EXPECT_EQ(dev_.refused(refused), 1U) << call_kind_name(refused);
    }
}

TEST_F(fault, limits_pinning_in_all) {
    dev_.refuse_pinning_above(3 * k_mib);
    void *more = dev_.map_host(2 * k_mib).value();
    const status refused = dev_.map_host(1).why();
    EXPECT_EQ(refused.code(), code::out_of_host_memory);
    EXPECT_NE(refused.text().find(std::to_string(3 * k_mib)), std::string::npos) << refused.text();
    ASSERT_TRUE(dev_.unmap_host(more, 2 * k_mib).ok());
    EXPECT_TRUE(dev_.map_host(k_mib).ok());
}

TEST_F(fault, breaks_for_good) {
    dev_.break_after(2);
    EXPECT_TRUE(copy_out());
    EXPECT_TRUE(dev_.record_event(event_, stream_).ok());
    EXPECT_FALSE(copy_out());
    EXPECT_EQ(dev_.event_done(event_).why().code(), code::device_error);
    EXPECT_EQ(dev_.synchronize_event(event_).code(), code::device_error);
    dev_.clear();
    EXPECT_TRUE(dev_.synchronize_event(event_).ok());
}

TEST_F(fault, holds_copies_of_one_direction) {
    std::memset(there_, 1, k_mib);
    ASSERT_TRUE(dev_.hold(copy_direction::d2h).ok());
    ASSERT_TRUE(copy_out());
    ASSERT_TRUE(dev_.record_event(event_, stream_).ok());
    ASSERT_TRUE(dev_.wait_until_held(copy_direction::d2h).ok());
    // The other direction goes on meanwhile.
    const stream_id in = dev_.create_stream(stream_role::h2d).value();
    auto *other = static_cast<unsigned char *>(dev_.alloc_device(k_mib).value());
    ASSERT_TRUE(dev_.copy(in, copy_direction::h2d, other, here_, k_mib).ok());
    ASSERT_TRUE(host_.synchronize_stream(in).ok());
    EXPECT_FALSE(dev_.event_done(event_).value());
    EXPECT_EQ(here_[0], 0);
    ASSERT_TRUE(dev_.release(copy_direction::d2h).ok());
    ASSERT_TRUE(dev_.synchronize_event(event_).ok());
    EXPECT_EQ(here_[k_mib - 1], 1);
}

TEST_F(fault, lets_so_many_copies_pass) {
    ASSERT_TRUE(dev_.hold(copy_direction::d2h).ok());
    event_id events[4];
    for (event_id &event : events) {
        event = dev_.create_event(event_kind::plain).value();
        ASSERT_TRUE(copy_out());
        ASSERT_TRUE(dev_.record_event(event, stream_).ok());
    }
    ASSERT_TRUE(dev_.let_pass(copy_direction::d2h, 2).ok());
    ASSERT_TRUE(dev_.synchronize_event(events[1]).ok());
    EXPECT_FALSE(dev_.event_done(events[2]).value());
    ASSERT_TRUE(dev_.let_pass(copy_direction::d2h, 1).ok());
    ASSERT_TRUE(dev_.synchronize_event(events[2]).ok());
    EXPECT_FALSE(dev_.event_done(events[3]).value());
    ASSERT_TRUE(dev_.release(copy_direction::d2h).ok());
    ASSERT_TRUE(dev_.synchronize_event(events[3]).ok());
}

TEST(fault_end, lets_go_of_what_it_holds) {
    host_device host(small_host());
    const stream_id stream = host.create_stream(stream_role::d2h).value();
    void *there = host.alloc_device(k_mib).value();
    void *here = host.map_host(k_mib).value();
    {
        fault_device dev(host);
        ASSERT_TRUE(dev.hold(copy_direction::d2h).ok());
        for (int i = 0; i < 10; ++i) {
            ASSERT_TRUE(dev.copy(stream, copy_direction::d2h, here, there, k_mib).ok());
        }
    }
    EXPECT_TRUE(host.synchronize_stream(stream).ok());
}

TEST_F(fault, damages_one_byte_of_one_copy) {
    std::memset(there_, 9, k_mib);
    ASSERT_TRUE(dev_.damage_copy(copy_direction::d2h, 2, 100).ok());
    ASSERT_TRUE(copy_out());
    ASSERT_TRUE(host_.synchronize_stream(stream_).ok());
    EXPECT_EQ(std::memcmp(here_, there_, k_mib), 0);
    ASSERT_TRUE(copy_out());
    ASSERT_TRUE(host_.synchronize_stream(stream_).ok());
    EXPECT_EQ(here_[100], 8);
    here_[100] = 9;
    EXPECT_EQ(std::memcmp(here_, there_, k_mib), 0);
    ASSERT_TRUE(copy_out());
    ASSERT_TRUE(host_.synchronize_stream(stream_).ok());
    EXPECT_EQ(std::memcmp(here_, there_, k_mib), 0);
}

TEST(fault_without_host, says_that_it_cannot_hold) {
    null_device null;
    fault_device dev(null);
    for (const status &answer :
         {dev.hold(copy_direction::d2h), dev.release(copy_direction::d2h), dev.let_pass(copy_direction::d2h, 1),
          dev.wait_until_held(copy_direction::d2h), dev.damage_copy(copy_direction::d2h, 1, 0)}) {
        EXPECT_EQ(answer.code(), code::unsupported);
    }
    dev.refuse(call_kind::copy);
    EXPECT_FALSE(dev.copy(stream_id{5}, copy_direction::d2h, nullptr, nullptr, 8).ok());
    EXPECT_EQ(null.calls(call_kind::copy), 0U);
}

// ---------------------------------------------------------------------------------------------------- trace --

// The same work on two devices, on other numbers and addresses.
std::vector<trace_entry> traced_work(trace_device &dev, int streams_before) {
    for (int i = 0; i < streams_before; ++i) {
        EXPECT_TRUE(dev.create_stream(stream_role::compute).ok());
    }
    const stream_id out = dev.create_stream(stream_role::d2h).value();
    auto *there = static_cast<char *>(dev.alloc_device(2 * k_mib).value());
    auto *here = static_cast<char *>(dev.map_host(2 * k_mib).value());
    const event_id event = dev.create_event(event_kind::plain).value();
    for (uint64_t chunk = 0; chunk < 4; ++chunk) {
        EXPECT_TRUE(
            dev.copy(out, copy_direction::d2h, here + chunk * k_mib / 2, there + chunk * k_mib / 2, k_mib / 2).ok());
    }
    EXPECT_TRUE(dev.record_event(event, out).ok());
    EXPECT_TRUE(dev.synchronize_event(event).ok());
    return dev.entries();
}

TEST(trace, two_runs_of_the_same_calls_are_equal) {
    host_device one(small_host());
    host_device two(small_host());
    trace_device first(one);
    trace_device second(two);
    const std::vector<trace_entry> a = traced_work(first, 0);
    const std::vector<trace_entry> b = traced_work(second, 0);
    EXPECT_EQ(a, b);
    ASSERT_EQ(a.size(), 10U);
    EXPECT_EQ(a[5].kind, call_kind::copy);
    EXPECT_EQ(to_string(a[5]), "copy EBB_OK stream 1 d2h block 2+524288 <- block 1+524288, 524288 bytes");
}

TEST(trace, other_calls_are_not_equal) {
    host_device host(small_host());
    trace_device dev(host);
    const std::vector<trace_entry> a = traced_work(dev, 0);
    dev.clear();
    EXPECT_NE(a, traced_work(dev, 0));
    EXPECT_EQ(dev.entries(call_kind::copy).size(), 4U);
}

TEST(trace, writes_down_every_kind_with_its_result) {
    host_device host(small_host());
    trace_device dev(host);
    std::vector<trace_entry> entries = traced_work(dev, 0);
    const stream_id bad{1};
    const event_id event = dev.create_event(event_kind::plain).value();
    uint64_t sum = 0;
    int local = 0;
    EXPECT_FALSE(dev.wait_event(bad, event).ok());
    EXPECT_FALSE(dev.copy(bad, copy_direction::h2d, nullptr, &local, 4).ok());
    EXPECT_FALSE(dev.checksum(bad, &local, 4, &sum).ok());
    EXPECT_FALSE(dev.elapsed_ns(event, event).ok());
    EXPECT_TRUE(dev.event_done(event).ok());
    EXPECT_TRUE(dev.destroy_event(event).ok());
    EXPECT_FALSE(dev.destroy_stream(bad).ok());
    EXPECT_FALSE(dev.alloc_device(0).ok());
    EXPECT_FALSE(dev.free_device(&local, 4).ok());
    EXPECT_FALSE(dev.unmap_host(&local, 4).ok());
    entries = dev.entries();
    for (size_t kind = 0; kind < k_call_kinds; ++kind) {
        EXPECT_FALSE(dev.entries(static_cast<call_kind>(kind)).empty()) << call_kind_name(static_cast<call_kind>(kind));
    }
    EXPECT_EQ(dev.entries(call_kind::wait_event).front().result, code::invalid_argument);
    const trace_entry refused = dev.entries(call_kind::copy).back();
    EXPECT_FALSE(refused.source.from_device);
    EXPECT_EQ(refused.destination, trace_place{});
    for (const trace_entry &entry : entries) {
        EXPECT_EQ(to_string(entry).find("unknown"), std::string::npos) << to_string(entry);
    }
}

TEST(trace, can_be_off) {
    null_device null;
    trace_device dev(null);
    dev.record(false);
    ASSERT_TRUE(dev.create_stream(stream_role::join).ok());
    EXPECT_TRUE(dev.entries().empty());
    dev.record(true);
    ASSERT_TRUE(dev.create_stream(stream_role::join).ok());
    ASSERT_EQ(dev.entries().size(), 1U);
    EXPECT_EQ(dev.entries()[0].stream, 2U);
}

}  // namespace
}  // namespace ebb
