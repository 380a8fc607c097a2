// Streams of a CUDA device by number: ours, which get numbers that no other stream ever had, and the caller's, whose
// number is what CUDA calls them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/status.hpp"
#include "device/cuda/cuda_api.hpp"
#include "device/device.hpp"

namespace ebb {

class cuda_streams {
public:
    // Refused when as many are alive as there is place for; the handle stays the caller's then.
    result<stream_id> add(cudaStream_t handle);
    // The number means nothing from here on.
    result<cudaStream_t> remove(stream_id stream);
    // All that were added and not removed; none is left.
    [[nodiscard]] std::vector<cudaStream_t> remove_all();
    [[nodiscard]] std::vector<cudaStream_t> all();

    // False when the number can be no stream; refusal() says why not.
    [[nodiscard]] bool find(stream_id stream, cudaStream_t &handle) const noexcept {
        const auto number = static_cast<uint64_t>(stream);
        if (number >> k_tag_shift == k_tag) {
            const slot &own = slots_[number % k_most_streams];
            const bool alive = own.number.load(std::memory_order_acquire) == number;
            handle = own.handle.load(std::memory_order_relaxed);
            return alive;
        }
        // CUDA's handles are addresses of objects of the driver: user space, beyond the first page, aligned.
        const bool address =
            number >= k_page_bytes && number >> k_user_space_bits == 0 && number % alignof(void *) == 0;
        handle = reinterpret_cast<cudaStream_t>(number);
        return address || number < k_per_thread || (number == k_per_thread && is_owner_of_per_thread());
    }
    [[nodiscard]] static status refusal(stream_id stream);

    // 0, 1 and 2 stand for streams of whatever device is current.
    [[nodiscard]] static bool is_current_devices(stream_id stream) noexcept {
        return static_cast<uint64_t>(stream) <= k_per_thread;
    }
    [[nodiscard]] static bool is_legacy(stream_id stream) noexcept {
        return static_cast<uint64_t>(stream) < k_per_thread;
    }

private:
    static constexpr uint64_t k_per_thread = 2;
    static constexpr uint64_t k_page_bytes = 4096;
    static constexpr unsigned k_user_space_bits = 57;
    // The top byte of our numbers, which no address in user space has.
    static constexpr uint64_t k_tag = 0xEB;
    static constexpr unsigned k_tag_shift = 56;
    static constexpr uint64_t k_most_streams = 4096;

    struct slot {
        std::atomic<uint64_t> number{0};  // 0: free
        std::atomic<cudaStream_t> handle{nullptr};
    };
    // In another thread's call number 2 would be another stream, and what was to be ordered would not be.
    [[nodiscard]] bool is_owner_of_per_thread() const noexcept {
        static thread_local char this_thread;
        const void *owner = nullptr;
        return per_thread_owner_.compare_exchange_strong(owner, &this_thread) || owner == &this_thread;
    }

    mutable std::atomic<const void *> per_thread_owner_{nullptr};  // the first thread that named number 2
    std::mutex mutex_;                                             // of add and remove; find takes no lock
    std::array<slot, k_most_streams> slots_;
    std::vector<uint32_t> free_;
    uint32_t used_ = 0;
};

}  // namespace ebb
