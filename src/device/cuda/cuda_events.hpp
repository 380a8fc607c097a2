// Events of a CUDA device by number: which CUDA event each is, whether it takes times and whether it was ever recorded,
// which CUDA does not tell.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.hpp"
#include "device/cuda/cuda_api.hpp"
#include "device/device.hpp"
#include "device/handle_number.hpp"

namespace ebb {

class cuda_events {
public:
    struct slot {
        std::atomic<uint64_t> number{0};  // 0: free
        std::atomic<cudaEvent_t> handle{nullptr};
        std::atomic<event_kind> kind{event_kind::plain};
        std::atomic<bool> recorded{false};
    };

    result<event_id> add(cudaEvent_t handle, event_kind kind);
    result<cudaEvent_t> remove(event_id event);
    [[nodiscard]] std::vector<cudaEvent_t> remove_all();

    // Null when no event of this device has that number; refusal() says so. Takes no lock.
    [[nodiscard]] slot *find(event_id event) noexcept {
        const auto number = static_cast<uint64_t>(event);
        page *held = pages_[handle_index(number) / k_page_slots].load(std::memory_order_acquire);
        slot *found = held == nullptr ? nullptr : &(*held)[handle_index(number) % k_page_slots];
        return found != nullptr && number != 0 && found->number.load(std::memory_order_acquire) == number ? found
                                                                                                          : nullptr;
    }
    [[nodiscard]] static status refusal(event_id event);

private:
    // Pages never move and never go, so that a reader needs no lock.
    static constexpr uint32_t k_page_slots = 4096;
    static constexpr uint32_t k_pages = (1U << k_handle_index_bits) / k_page_slots;
    using page = std::array<slot, k_page_slots>;

    std::mutex mutex_;  // of add and remove
    std::array<std::atomic<page *>, k_pages> pages_{};
    std::vector<std::unique_ptr<page>> owned_;
    std::vector<uint32_t> free_;
    uint32_t used_ = 0;
};

}  // namespace ebb
