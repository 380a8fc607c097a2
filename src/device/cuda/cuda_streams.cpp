#include "device/cuda/cuda_streams.hpp"

#include <fmt/core.h>

namespace ebb {

result<stream_id> cuda_streams::add(cudaStream_t handle) {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
        if (used_ == k_most_streams) {
            return status{code::device_error,
                          fmt::format("create_stream: {} streams are alive, the most that a CUDA device keeps count "
                                      "of; destroy streams that are no longer used",
                                      k_most_streams)};
        }
        free_.push_back(used_++);
    }
    static std::atomic<uint64_t> next_serial{1};
    constexpr uint64_t k_tag_bits = k_tag << k_tag_shift;
    const uint64_t serial = next_serial.fetch_add(1, std::memory_order_relaxed);
    const uint64_t number = k_tag_bits | (serial * k_most_streams + free_.back()) % (uint64_t{1} << k_tag_shift);
    slot &own = slots_[free_.back()];
    free_.pop_back();
    own.handle.store(handle, std::memory_order_relaxed);
    own.number.store(number, std::memory_order_release);
    return stream_id{number};
}

result<cudaStream_t> cuda_streams::remove(stream_id stream) {
    const auto number = static_cast<uint64_t>(stream);
    const std::lock_guard lock(mutex_);
    slot &own = slots_[number % k_most_streams];
    if (number >> k_tag_shift != k_tag || own.number.load(std::memory_order_relaxed) != number) {
        return status{
            code::invalid_argument,
            fmt::format("destroy_stream: stream {} is none that this device created, or was destroyed before", number)};
    }
    own.number.store(0, std::memory_order_relaxed);
    free_.push_back(static_cast<uint32_t>(number % k_most_streams));
    return own.handle.load(std::memory_order_relaxed);
}

std::vector<cudaStream_t> cuda_streams::all() {
    const std::lock_guard lock(mutex_);
    std::vector<cudaStream_t> handles;
    handles.reserve(used_);
    for (const slot &own : slots_) {
        if (own.number.load(std::memory_order_relaxed) != 0) {
            handles.push_back(own.handle.load(std::memory_order_relaxed));
        }
    }
    return handles;
}

std::vector<cudaStream_t> cuda_streams::remove_all() {
    const std::lock_guard lock(mutex_);
    std::vector<cudaStream_t> handles;
    for (slot &own : slots_) {
        if (own.number.exchange(0, std::memory_order_relaxed) != 0) {
            handles.push_back(own.handle.load(std::memory_order_relaxed));
        }
    }
    free_.clear();
    used_ = 0;
    return handles;
}

status cuda_streams::refusal(stream_id stream) {
    const auto number = static_cast<uint64_t>(stream);
    if (number == k_per_thread) {
        return {code::invalid_argument,
                "stream 2 (per-thread) is the stream of the thread that calls, and another thread has named it on this "
                "device before: give a cudaStream_t, or call from one thread only"};
    }
    if (stream == k_calling_thread) {
        return {code::invalid_argument,
                fmt::format("stream {}: the calling thread is no stream of a CUDA device; give a cudaStream_t, or 0, 1 "
                            "or 2",
                            number)};
    }
    if (number >> k_tag_shift == k_tag) {
        return {code::invalid_argument,
                fmt::format("stream {}: no stream of this CUDA device has that number; it was destroyed, or comes from "
                            "another device",
                            number)};
    }
    return {code::invalid_argument,
            fmt::format("stream {}: not a stream; give the value of a cudaStream_t, or 0 (default), 1 (legacy) or 2 "
                        "(per-thread)",
                        number)};
}

}  // namespace ebb
