// A marker is one recording of an event: a point on a stream that is passed once. Recording an event again takes
// another marker, so waits that were enqueued before keep the point they meant.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>

#include "device/device.hpp"

namespace ebb {

class marker {
public:
    // Called once, by the stream that gets there.
    void pass() noexcept;
    [[nodiscard]] bool passed() const noexcept { return passed_.load(std::memory_order_acquire) != 0; }
    void wait() const noexcept;
    // Nanoseconds on the steady clock; meaningful for timed markers that were passed.
    [[nodiscard]] uint64_t time_ns() const noexcept { return time_ns_.load(std::memory_order_relaxed); }

private:
    friend class marker_pool;
    std::atomic<uint32_t> passed_{0};
    std::atomic<uint32_t> holders_{0};
    bool timed_ = false;
    std::atomic<uint64_t> time_ns_{0};  // read behind passed_
    marker *next_free_ = nullptr;
};

// Markers are reused and never given back before the pool goes: no heap allocation once warm, and a late look at
// one is never a look at freed memory.
class marker_pool {
public:
    [[nodiscard]] marker *take(event_kind kind, uint32_t holders);
    static void hold(marker *held) noexcept { held->holders_.fetch_add(1, std::memory_order_relaxed); }
    void release(marker *held) noexcept;

private:
    std::mutex mutex_;
    std::deque<marker> markers_;
    marker *free_ = nullptr;
};

}  // namespace ebb
