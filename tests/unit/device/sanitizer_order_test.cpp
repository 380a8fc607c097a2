// The thread sanitizer finds a wait that is missing on the host device also where all went well in time. In its builds
// only.
#ifdef EBB_SANITIZES_THREADS

#include "device/host/sanitizer_order.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "device/host/host_device.hpp"

namespace ebb {
namespace {

constexpr int k_race = 66;  // how a program ends in which the sanitizer found one

// A kernel, or a copy, that uses a value beside others that use it. What they tell each other of time orders nothing.
struct shared_value {
    static void write(void *argument) {
        auto *self = static_cast<shared_value *>(argument);
        while (!self->begin.load(std::memory_order_relaxed)) {
            std::this_thread::yield();
        }
        self->value = 1;
        tell(argument);
    }
    static void tell(void *argument) {
        static_cast<shared_value *>(argument)->over.store(true, std::memory_order_relaxed);
    }
    static void nothing(void *) {}
    void await_end() const {
        while (!over.load(std::memory_order_relaxed)) {
            std::this_thread::yield();
        }
    }

    uint64_t value = 0;
    uint64_t copied = 0;
    std::atomic<bool> begin{true};
    std::atomic<bool> over{false};
};

class sanitizer_order_test : public ::testing::Test {
protected:
    // Each runs in a program of its own: a fork would have no threads.
    sanitizer_order_test() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

    void launch(stream_id stream, void (*function)(void *)) {
        ASSERT_TRUE(device_.launch(stream, function, &shared_).ok());
    }
    void copy(stream_id stream, uint64_t *destination, const uint64_t *source) {
        ASSERT_TRUE(device_.copy(stream, copy_direction::d2h, destination, source, sizeof(uint64_t)).ok());
    }
    void come_behind(stream_id later, stream_id earlier) {
        const event_id event = device_.create_event(event_kind::plain).value();
        ASSERT_TRUE(device_.record_event(event, earlier).ok());
        ASSERT_TRUE(device_.wait_event(later, event).ok());
    }
    void await_all() {
        for (const stream_id stream : {compute_, lane_, other_lane_}) {
            ASSERT_TRUE(device_.synchronize_stream(stream).ok());
        }
    }

    host_device device_{host_device_options{}};
    stream_id compute_ = device_.create_stream(stream_role::compute).value();
    stream_id lane_ = device_.create_stream(stream_role::d2h).value();
    stream_id other_lane_ = device_.create_stream(stream_role::d2h).value();
    shared_value shared_;
};

TEST_F(sanitizer_order_test, what_was_waited_for_is_no_race) {
    launch(compute_, shared_value::write);
    come_behind(lane_, compute_);
    copy(lane_, &shared_.copied, &shared_.value);
    come_behind(other_lane_, lane_);
    copy(other_lane_, &shared_.value, &shared_.copied);
    ASSERT_TRUE(device_.synchronize_stream(other_lane_).ok());
    EXPECT_EQ(++shared_.value, 2U);
}

TEST_F(sanitizer_order_test, a_kernel_that_merely_was_over_is_one) {
    const auto race = [this] {
        launch(compute_, shared_value::write);
        shared_.await_end();
        launch(compute_, shared_value::nothing);  // behind it, and through its lock
        shared_.value = 2;
        await_all();
        std::exit(0);
    };
    EXPECT_EXIT(race(), ::testing::ExitedWithCode(k_race), "data race");
}

TEST_F(sanitizer_order_test, what_changes_under_a_kernel_is_one) {
    const auto race = [this] {
        shared_.begin = false;
        launch(compute_, shared_value::write);
        shared_.value = 2;
        launch(compute_, shared_value::nothing);
        shared_.begin.store(true, std::memory_order_relaxed);
        await_all();
        std::exit(0);
    };
    EXPECT_EXIT(race(), ::testing::ExitedWithCode(k_race), "data race");
}

TEST_F(sanitizer_order_test, copies_that_merely_shared_a_link_are_one) {
    const auto race = [this] {
        copy(lane_, &shared_.value, &shared_.copied);
        launch(lane_, shared_value::tell);
        shared_.await_end();
        copy(other_lane_, &shared_.value, &shared_.copied);
        await_all();
        std::exit(0);
    };
    EXPECT_EXIT(race(), ::testing::ExitedWithCode(k_race), "data race");
}

TEST_F(sanitizer_order_test, a_stream_that_does_not_wait_for_another_is_one) {
    const auto race = [this] {
        launch(compute_, shared_value::write);
        shared_.await_end();
        come_behind(compute_, lane_);  // the wrong way
        copy(lane_, &shared_.copied, &shared_.value);
        await_all();
        std::exit(0);
    };
    EXPECT_EXIT(race(), ::testing::ExitedWithCode(k_race), "data race");
}

}  // namespace
}  // namespace ebb

#endif
