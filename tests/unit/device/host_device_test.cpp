#include "device/host/host_device.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "fake_system.hpp"

namespace ebb {
namespace {

constexpr uint64_t k_mib = 1ULL << 20U;

host_device_options options_of(uint64_t capacity_bytes) {
    host_device_options options;
    options.capacity_bytes = capacity_bytes;
    return options;
}

void wait_for(void *future) {
    static_cast<std::shared_future<void> *>(future)->wait();
}

TEST(host_device, runs_launched_functions_in_order_on_one_thread) {
    host_device dev(options_of(k_mib));
    const stream_id stream = dev.create_stream(stream_role::compute).value();
    struct step {
        std::vector<std::pair<int, std::thread::id>> *done;
        int number;
    };
    std::vector<std::pair<int, std::thread::id>> done;
    std::vector<step> steps;
    for (int i = 0; i < 1000; ++i) {
        steps.push_back({&done, i});
    }
    const auto run = [](void *argument) {
        const step &current = *static_cast<step *>(argument);
        current.done->emplace_back(current.number, std::this_thread::get_id());
    };
    for (step &each : steps) {
        ASSERT_TRUE(dev.launch(stream, run, &each).ok());
    }
    ASSERT_TRUE(dev.synchronize_stream(stream).ok());
    ASSERT_EQ(done.size(), steps.size());
    for (size_t i = 0; i < done.size(); ++i) {
        EXPECT_EQ(done[i].first, static_cast<int>(i));
        EXPECT_EQ(done[i].second, done[0].second);
    }
    EXPECT_NE(done[0].second, std::this_thread::get_id());
}

TEST(host_device, streams_run_at_the_same_time) {
    host_device dev(options_of(k_mib));
    // Each waits for the other: in one thread neither would end.
    std::promise<void> first;
    std::promise<void> second;
    struct meeting {
        std::promise<void> *mine;
        std::shared_future<void> others;
    };
    meeting one{&first, second.get_future().share()};
    meeting two{&second, first.get_future().share()};
    const auto meet = [](void *argument) {
        auto &current = *static_cast<meeting *>(argument);
        current.mine->set_value();
        current.others.wait();
    };
    const stream_id stream = dev.create_stream(stream_role::compute).value();
    ASSERT_TRUE(dev.launch(stream, meet, &one).ok());
    ASSERT_TRUE(dev.launch(k_default_stream, meet, &two).ok());
    EXPECT_TRUE(dev.synchronize_stream(stream).ok());
    EXPECT_TRUE(dev.synchronize_stream(k_default_stream).ok());
}

TEST(host_device, a_stream_cannot_wait_for_itself) {
    host_device dev(options_of(k_mib));
    struct attempt {
        host_device *dev;
        stream_id stream;
        code answer;
    };
    attempt tried{&dev, dev.create_stream(stream_role::compute).value(), code::ok};
    const auto wait_for_self = [](void *argument) {
        auto &current = *static_cast<attempt *>(argument);
        current.answer = current.dev->synchronize_stream(current.stream).code();
    };
    ASSERT_TRUE(dev.launch(tried.stream, wait_for_self, &tried).ok());
    ASSERT_TRUE(dev.synchronize_stream(tried.stream).ok());
    EXPECT_EQ(tried.answer, code::wrong_state);
}

TEST(host_device, launch_and_synchronize_refuse_what_cannot_be) {
    host_device dev(options_of(k_mib));
    EXPECT_EQ(dev.launch(k_default_stream, nullptr, nullptr).code(), code::invalid_argument);
    EXPECT_EQ(dev.launch(stream_id{1}, wait_for, nullptr).code(), code::invalid_argument);
    EXPECT_EQ(dev.synchronize_stream(stream_id{2}).code(), code::invalid_argument);
    EXPECT_EQ(dev.destroy_stream(k_default_stream).code(), code::invalid_argument);
}

TEST(host_device, does_everything_that_is_enqueued_before_it_goes) {
    std::atomic<int> done{0};
    const auto count = [](void *argument) { ++*static_cast<std::atomic<int> *>(argument); };
    {
        host_device dev(options_of(k_mib));
        const stream_id first = dev.create_stream(stream_role::compute).value();
        const stream_id second = dev.create_stream(stream_role::compute).value();
        const event_id event = dev.create_event(event_kind::plain).value();
        for (int i = 0; i < 500; ++i) {
            ASSERT_TRUE(dev.launch(first, count, &done).ok());
            ASSERT_TRUE(dev.record_event(event, first).ok());
            ASSERT_TRUE(dev.wait_event(second, event).ok());
            ASSERT_TRUE(dev.launch(second, count, &done).ok());
            ASSERT_TRUE(dev.record_event(event, second).ok());
            ASSERT_TRUE(dev.wait_event(k_default_stream, event).ok());
            ASSERT_TRUE(dev.launch(k_default_stream, count, &done).ok());
        }
    }
    EXPECT_EQ(done.load(), 1500);
}

TEST(host_device, another_ones_numbers_are_not_its_own) {
    host_device one(options_of(k_mib));
    host_device two(options_of(k_mib));
    const stream_id stream = one.create_stream(stream_role::compute).value();
    ASSERT_TRUE(two.create_stream(stream_role::compute).ok());
    const event_id event = one.create_event(event_kind::plain).value();
    ASSERT_TRUE(two.create_event(event_kind::plain).ok());
    EXPECT_EQ(two.check_stream(stream).code(), code::invalid_argument);
    EXPECT_EQ(two.record_event(event, k_default_stream).code(), code::invalid_argument);
}

TEST(host_device, too_many_streams_are_refused) {
    host_device dev(options_of(k_mib));
    code last = code::ok;
    for (int i = 0; i < 2000 && last == code::ok; ++i) {
        last = dev.create_stream(stream_role::compute).why().code();
    }
    EXPECT_EQ(last, code::device_error);
}

// --------------------------------------------------------------------------------------------- device memory --

TEST(host_device, freed_memory_of_the_same_size_costs_no_system_call) {
    host_device dev(options_of(64 * k_mib));
    void *first = dev.alloc_device(k_mib).value();
    void *second = dev.alloc_device(2 * k_mib).value();
    for (int i = 0; i < 100; ++i) {
        ASSERT_TRUE(dev.free_device(first, k_mib).ok());
        ASSERT_TRUE(dev.free_device(second, 2 * k_mib).ok());
        first = dev.alloc_device(k_mib).value();
        second = dev.alloc_device(2 * k_mib).value();
    }
    const device_arena_statistics arena = dev.statistics().arena;
    EXPECT_EQ(arena.mappings, 2U);
    EXPECT_EQ(arena.allocations, 202U);
    EXPECT_EQ(arena.used_bytes, 3 * k_mib);
    EXPECT_EQ(arena.peak_bytes, 3 * k_mib);
    EXPECT_EQ(arena.cached_bytes, 0U);
}

// A caller frees before his streams have come to the last use, and the core's copies are not behind those streams.
TEST(host_device, what_a_caller_freed_never_becomes_the_cores) {
    host_device dev(options_of(2 * k_mib));
    void *callers = dev.alloc_for_caller(k_mib).value();
    ASSERT_TRUE(dev.free_device(callers).ok());
    void *cores = dev.alloc_device(k_mib).value();
    EXPECT_NE(cores, callers);
    ASSERT_TRUE(dev.free_device(cores, k_mib).ok());
    EXPECT_EQ(dev.alloc_for_caller(k_mib).value(), callers);
    EXPECT_EQ(dev.alloc_device(k_mib).value(), cores);
}

TEST(host_device, cached_memory_stays_within_the_cap) {
    host_device dev(options_of(16 * k_mib));
    for (uint64_t mib = 1; mib <= 16; ++mib) {
        void *block = dev.alloc_device(mib * k_mib).value();
        ASSERT_TRUE(dev.free_device(block).ok());
        const device_arena_statistics arena = dev.statistics().arena;
        EXPECT_LE(arena.cached_bytes, arena.capacity_bytes);
        EXPECT_EQ(arena.used_bytes, 0U);
    }
    EXPECT_EQ(dev.statistics().arena.peak_bytes, 16 * k_mib);
    EXPECT_EQ(dev.statistics().retired_bytes, 15 * k_mib);  // until the next call that asks the system
    ASSERT_TRUE(dev.map_host(4096).ok());
    EXPECT_EQ(dev.statistics().retired_bytes, 0U);
}

TEST(host_device, memory_is_unmapped_behind_the_streams_only) {
    host_device dev(options_of(4 * k_mib));
    std::promise<void> open;
    std::shared_future<void> opened = open.get_future().share();
    ASSERT_TRUE(dev.launch(k_default_stream, wait_for, &opened).ok());
    void *mapped = dev.map_host(k_mib).value();
    std::memset(mapped, 7, k_mib);
    uint64_t sum = 5;
    ASSERT_TRUE(dev.checksum(k_default_stream, mapped, k_mib, &sum).ok());
    const uint64_t right = checksum_bytes(5, mapped, k_mib);
    ASSERT_TRUE(dev.unmap_host(mapped, k_mib).ok());
    EXPECT_EQ(dev.statistics().retired_bytes, k_mib);
    EXPECT_EQ(dev.statistics().host_mapped_bytes, 0U);
    open.set_value();
    ASSERT_TRUE(dev.synchronize_stream(k_default_stream).ok());
    EXPECT_EQ(sum, right);
    ASSERT_TRUE(dev.map_host(4096).ok());
    EXPECT_EQ(dev.statistics().retired_bytes, 0U);
}

// --------------------------------------------------------------------------------------------- pinned memory --

TEST(host_device, pinned_memory_counts_what_the_system_did_not_lock) {
    host_device dev(options_of(k_mib));
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    rlimit none = before;
    none.rlim_cur = 0;
    ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &none), 0);
    const result<void *> mapped = dev.map_host(3 * k_mib);
    ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
    ASSERT_TRUE(mapped.ok());
    std::memset(mapped.value(), 1, 3 * k_mib);
    const host_device_statistics statistics = dev.statistics();
    EXPECT_EQ(statistics.host_mapped_bytes, 3 * k_mib);
    // Root may lock whatever the limit says.
    EXPECT_TRUE(statistics.host_unlocked_bytes == 3 * k_mib || statistics.host_unlocked_bytes == 0);
    EXPECT_EQ(statistics.host_maps, 1U);
    ASSERT_TRUE(dev.unmap_host(mapped.value(), 3 * k_mib).ok());
    EXPECT_EQ(dev.statistics().host_mapped_bytes, 0U);
    EXPECT_EQ(dev.statistics().host_unlocked_bytes, 0U);
}

TEST(host_device, large_pinned_memory_is_touched_by_several_threads) {
    host_device_options options = options_of(k_mib);
    options.prefault_threads = 3;
    host_device dev(options);
    constexpr uint64_t k_bytes = 200 * k_mib + 4096 + 1;
    auto *mapped = static_cast<unsigned char *>(dev.map_host(k_bytes).value());
    EXPECT_EQ(mapped[0], 0);
    mapped[k_bytes - 1] = 1;
    EXPECT_TRUE(dev.unmap_host(mapped, k_bytes).ok());
}

class limited_host_device : public ::testing::Test {
protected:
    void SetUp() override {
        system_.write("/proc/self/cgroup", "0::/job\n");
        system_.write("/proc/meminfo", "MemTotal: 100000000 kB\nMemAvailable: 90000000 kB\n");
        limit(100 * k_mib, 0);
    }
    void limit(uint64_t limit_bytes, uint64_t used_bytes) const {
        system_.write("/sys/fs/cgroup/job/memory.max", std::to_string(limit_bytes) + "\n");
        system_.write("/sys/fs/cgroup/job/memory.current", std::to_string(used_bytes) + "\n");
    }
    [[nodiscard]] host_device_options options(uint64_t capacity_bytes) const {
        host_device_options made = options_of(capacity_bytes);
        made.system_root = system_.root();
        return made;
    }

    fake_system system_;
};

TEST_F(limited_host_device, room_is_the_groups_less_margin_and_device_memory) {
    host_device dev(options(20 * k_mib));
    EXPECT_EQ(dev.host_room_bytes(), 75 * k_mib);
    limit(100 * k_mib, 30 * k_mib);
    EXPECT_EQ(dev.host_room_bytes(), 45 * k_mib);
    limit(100 * k_mib, 90 * k_mib);
    EXPECT_EQ(dev.host_room_bytes(), 0U);
    // Device memory taken from the system is in the group's use already.
    limit(100 * k_mib, 40 * k_mib);
    ASSERT_TRUE(dev.alloc_device(15 * k_mib).ok());
    EXPECT_EQ(dev.host_room_bytes(), 50 * k_mib);
}

TEST_F(limited_host_device, pinning_beyond_the_room_says_who_limits_and_what_to_do) {
    host_device dev(options(20 * k_mib));
    const status refused = dev.map_host(75 * k_mib + 1).why();
    EXPECT_EQ(refused.code(), code::out_of_host_memory);
    for (const std::string &part :
         {std::to_string(75 * k_mib + 1), std::to_string(75 * k_mib), std::to_string(20 * k_mib),
          std::to_string(100 * k_mib), std::string("control group"), std::string("/sys/fs/cgroup/job/memory.max"),
          std::string("host_bytes")}) {
        EXPECT_NE(refused.text().find(part), std::string::npos) << "no \"" << part << "\" in: " << refused.text();
    }
    EXPECT_TRUE(dev.map_host(75 * k_mib).ok());
}

TEST_F(limited_host_device, the_system_may_be_the_one_that_limits) {
    system_.write("/proc/meminfo", "MemTotal: 100000 kB\nMemAvailable: 20000 kB\n");
    host_device dev(options(k_mib));
    const status refused = dev.map_host(30 * k_mib).why();
    EXPECT_EQ(refused.code(), code::out_of_host_memory);
    EXPECT_NE(refused.text().find("system's memory"), std::string::npos) << refused.text();
}

// ---------------------------------------------------------------------------------------------------- links --

// The times of timed events, not of this thread: a copy cannot end before the link is through with it.
TEST(host_device, a_rate_limit_holds_per_direction_over_all_streams) {
    host_device_options options = options_of(8 * k_mib);
    options.d2h_bytes_per_second = 200 * k_mib;
    host_device dev(options);
    auto *there = static_cast<unsigned char *>(dev.alloc_device(4 * k_mib).value());
    auto *here = static_cast<unsigned char *>(dev.map_host(4 * k_mib).value());
    std::memset(there, 3, 4 * k_mib);
    const stream_id streams[] = {dev.create_stream(stream_role::d2h).value(),
                                 dev.create_stream(stream_role::d2h).value()};
    const event_id start = dev.create_event(event_kind::timed).value();
    ASSERT_TRUE(dev.record_event(start, streams[0]).ok());
    ASSERT_TRUE(dev.wait_event(streams[1], start).ok());
    event_id ends[2];
    for (size_t i = 0; i < 2; ++i) {
        ends[i] = dev.create_event(event_kind::timed).value();
        for (uint64_t part = 0; part < 2; ++part) {
            const uint64_t at = (2 * i + part) * k_mib;
            ASSERT_TRUE(dev.copy(streams[i], copy_direction::d2h, here + at, there + at, k_mib).ok());
        }
        ASSERT_TRUE(dev.record_event(ends[i], streams[i]).ok());
    }
    uint64_t last_ns = 0;
    for (const event_id end : ends) {
        ASSERT_TRUE(dev.synchronize_event(end).ok());
        last_ns = std::max(last_ns, dev.elapsed_ns(start, end).value());
    }
    // 4 MiB at 200 MiB/s are 20 ms, less the grace for late wakeups.
    EXPECT_GE(last_ns, 19'500'000U);
    EXPECT_EQ(std::memcmp(here, there, 4 * k_mib), 0);
}

}  // namespace
}  // namespace ebb
