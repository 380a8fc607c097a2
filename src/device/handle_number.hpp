// Numbers of streams and events: an index for finding the object and a serial that no other object of this process
// ever had, so that a number outlives its object harmlessly and never names another one, not even on another host
// device.
#pragma once

#include <atomic>
#include <cstdint>

namespace ebb {

constexpr uint32_t k_handle_index_bits = 24;

constexpr uint32_t handle_index(uint64_t number) noexcept {
    return static_cast<uint32_t>(number & ((1U << k_handle_index_bits) - 1U));
}

// Never below 2^24, hence never 0, 1 or 2; all ones is a trillion objects away.
inline uint64_t new_handle_number(uint32_t index) noexcept {
    static std::atomic<uint64_t> next_serial{1};
    return next_serial.fetch_add(1, std::memory_order_relaxed) << k_handle_index_bits | index;
}

}  // namespace ebb
