#include "device/host/copy_engine.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "device/host/sanitizer_order.hpp"

namespace ebb {
namespace {

using clock = std::chrono::steady_clock;

// Pieces of a paced copy; only long gaps are slept in between, so that a slow link spreads its memory traffic.
constexpr uint64_t k_piece_bytes = 1ULL << 20U;
constexpr uint64_t k_shortest_sleep_ns = 1'000'000;
// Sleeps end late by the timer's slack and a woken thread needs a moment: back-to-back copies get that back, or the
// link would be slower than it says.
constexpr uint64_t k_grace_ns = 200'000;

uint64_t now_ns() noexcept {
    return static_cast<uint64_t>(std::chrono::nanoseconds(clock::now().time_since_epoch()).count());
}

void sleep_until_ns(uint64_t deadline_ns) {
    std::this_thread::sleep_until(clock::time_point(std::chrono::nanoseconds(deadline_ns)));
}

}  // namespace

void copy_engine::copy(void *destination, const void *source, uint64_t size_bytes) noexcept {
    await_turn();
    if (bytes_per_second_ == 0) {
        std::memcpy(destination, source, size_bytes);
    } else {
        copy_paced(destination, source, size_bytes);
    }
    end_turn();
}

// Copies of streams that share an engine come one after the other, but in no order that anybody may rely on.
void copy_engine::await_turn() noexcept {
    const unordered_section section;
    const uint32_t ticket = next_ticket_.fetch_add(1, std::memory_order_relaxed);
    for (uint32_t served = serving_.load(std::memory_order_acquire); served != ticket;
         served = serving_.load(std::memory_order_acquire)) {
        serving_.wait(served, std::memory_order_acquire);
    }
}

void copy_engine::end_turn() noexcept {
    const unordered_section section;
    // Sequentially consistent for notify_all's look at the waiters, see marker::pass.
    serving_.fetch_add(1, std::memory_order_seq_cst);
    serving_.notify_all();
}

uint64_t copy_engine::link_ns(uint64_t size_bytes) const noexcept {
    constexpr double k_ns_per_second = 1e9;
    return static_cast<uint64_t>(static_cast<double>(size_bytes) * k_ns_per_second /
                                 static_cast<double>(bytes_per_second_));
}

void copy_engine::copy_paced(void *destination, const void *source, uint64_t size_bytes) noexcept {
    const uint64_t start_ns = std::max(free_at_ns_.load(std::memory_order_relaxed), now_ns() - k_grace_ns);
    for (uint64_t copied = 0; copied < size_bytes;) {
        const uint64_t piece = std::min(k_piece_bytes, size_bytes - copied);
        std::memcpy(static_cast<char *>(destination) + copied, static_cast<const char *>(source) + copied, piece);
        copied += piece;
        const uint64_t due_ns = start_ns + link_ns(copied);
        if (due_ns > now_ns() + k_shortest_sleep_ns) {
            sleep_until_ns(due_ns);
        }
    }
    const uint64_t end_ns = start_ns + link_ns(size_bytes);
    free_at_ns_.store(end_ns, std::memory_order_relaxed);
    if (end_ns > now_ns()) {
        sleep_until_ns(end_ns);
    }
}

}  // namespace ebb
