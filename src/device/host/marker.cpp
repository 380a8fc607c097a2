#include "device/host/marker.hpp"

#include <chrono>

#include "base/check.hpp"
#include "device/host/sanitizer_order.hpp"

namespace ebb {

void marker::pass() noexcept {
    if (timed_) {
        const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
        time_ns_.store(static_cast<uint64_t>(now.count()), std::memory_order_relaxed);
    }
    // Sequentially consistent on purpose: notify_all looks at the count of waiters right after, and a store that is
    // still on its way then would lose the wakeup.
    passed_.store(1, std::memory_order_seq_cst);
    const unordered_section section;  // the count of waiters orders nobody
    passed_.notify_all();
}

void marker::wait() const noexcept {
    while (passed_.load(std::memory_order_acquire) == 0) {
        const unordered_section section;
        passed_.wait(0, std::memory_order_acquire);
    }
}

marker *marker_pool::take(event_kind kind, uint32_t holders) {
    const unordered_section section;
    const std::lock_guard lock(mutex_);
    if (free_ == nullptr) {
        free_ = &markers_.emplace_back();
    }
    marker *taken = free_;
    free_ = taken->next_free_;
    taken->next_free_ = nullptr;
    taken->timed_ = kind == event_kind::timed;
    taken->passed_.store(0, std::memory_order_relaxed);
    taken->holders_.store(holders, std::memory_order_relaxed);
    return taken;
}

void marker_pool::release(marker *held) noexcept {
    const unordered_section section;
    const uint32_t before = held->holders_.fetch_sub(1, std::memory_order_acq_rel);
    EBB_CHECK(before > 0);
    if (before == 1) {
        const std::lock_guard lock(mutex_);
        held->next_free_ = free_;
        free_ = held;
    }
}

}  // namespace ebb
