// What Ebb's calls cost the calling thread: whole training steps of equal activations, offloaded and reloaded with the
// record followed and prefetches issued, as in training.
#pragma once

#include <cstdint>
#include <optional>

#include "link/link_rig.hpp"

namespace ebb::link {

struct call_cost {
    uint64_t size_bytes = 0;
    uint64_t chunks = 0;  // that one activation is cut into
    uint64_t activations = 0;
    uint64_t steps = 0;
    double call_ns = 0;  // per activation, both ways: time inside Ebb's calls, medians over the steps
    // On CUDA: of it, time that is not inside CUDA calls; calls to CUDA per activation; one cudaMemcpyAsync of that
    // size.
    struct cuda_share {
        double own_ns = 0;
        double d2h_calls = 0;
        double h2d_calls = 0;
        double memcpy_ns = 0;
    };
    std::optional<cuda_share> cuda;

    // What is promised for each way: one call per chunk and at most four more. The question whether a stream is part of
    // a capture, one per call of Ebb's, is not among them.
    [[nodiscard]] uint64_t promised_calls() const noexcept { return chunks + 4; }
};

[[nodiscard]] cell_memory memory_of_call_cost(uint64_t size_bytes) noexcept;
// 0 as chunk_bytes: as large as the device has them.
result<call_cost> measure_call_cost(link_device on, uint64_t size_bytes, uint64_t chunk_bytes = 0);

}  // namespace ebb::link
