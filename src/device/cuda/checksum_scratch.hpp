// Scratch memory for checksums: a few areas, each behind the checksum that used it last, so that checksums of different
// streams never share one at the same time and none waits for the host.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "base/status.hpp"
#include "device/cuda/cuda_context.hpp"

namespace ebb {

class checksum_scratch {
public:
    explicit checksum_scratch(cuda_context &context) : context_(context) {}

    // With the device current. What was taken before a failure is given back by give_back.
    status take();
    void give_back();

    // Enqueues the checksum, with the device current.
    status launch(cudaStream_t stream, const void *data, uint64_t size_bytes, uint64_t *accumulator);

private:
    static constexpr size_t k_areas = 8;
    struct area {
        cudaEvent_t free_again = nullptr;
        bool used = false;
        bool lost = false;  // its last user's end is not marked: nobody can come behind it
    };
    [[nodiscard]] area *next_area();
    cuda_context &context_;
    std::mutex mutex_;
    void *memory_ = nullptr;
    std::array<area, k_areas> areas_;
    size_t next_ = 0;
};

}  // namespace ebb
