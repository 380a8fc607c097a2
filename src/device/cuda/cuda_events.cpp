#include "device/cuda/cuda_events.hpp"

#include <fmt/core.h>

namespace ebb {

result<event_id> cuda_events::add(cudaEvent_t handle, event_kind kind) {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
        if (used_ == k_pages * k_page_slots) {
            return status{code::device_error,
                          fmt::format("create_event: {} events are alive, the most that a CUDA device keeps count of; "
                                      "destroy events that are no longer used",
                                      used_)};
        }
        if (used_ % k_page_slots == 0) {
            owned_.push_back(std::make_unique<page>());
            pages_[used_ / k_page_slots].store(owned_.back().get(), std::memory_order_release);
        }
        free_.push_back(used_++);
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    slot &added = (*owned_[index / k_page_slots])[index % k_page_slots];
    added.handle.store(handle, std::memory_order_relaxed);
    added.kind.store(kind, std::memory_order_relaxed);
    added.recorded.store(false, std::memory_order_relaxed);
    const uint64_t number = new_handle_number(index);
    added.number.store(number, std::memory_order_release);
    return event_id{number};
}

result<cudaEvent_t> cuda_events::remove(event_id event) {
    const std::lock_guard lock(mutex_);
    slot *found = find(event);
    if (found == nullptr) {
        return refusal(event);
    }
    found->number.store(0, std::memory_order_relaxed);
    free_.push_back(handle_index(static_cast<uint64_t>(event)));
    return found->handle.load(std::memory_order_relaxed);
}

std::vector<cudaEvent_t> cuda_events::remove_all() {
    const std::lock_guard lock(mutex_);
    std::vector<cudaEvent_t> handles;
    for (uint32_t index = 0; index < used_; ++index) {
        slot &held = (*owned_[index / k_page_slots])[index % k_page_slots];
        if (held.number.exchange(0, std::memory_order_relaxed) != 0) {
            handles.push_back(held.handle.load(std::memory_order_relaxed));
            free_.push_back(index);
        }
    }
    return handles;
}

status cuda_events::refusal(event_id event) {
    return {code::invalid_argument,
            fmt::format("event {}: no event of this CUDA device has that number; it was destroyed, or comes from "
                        "another device",
                        static_cast<uint64_t>(event))};
}

}  // namespace ebb
