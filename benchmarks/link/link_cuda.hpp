// CUDA as the benchmark itself uses it, beside Ebb: a table, so that the benchmark's logic can be tested without a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ebb::link {

struct link_cuda {
    cudaError_t (*host_alloc)(void **data, size_t size_bytes, unsigned flags);
    cudaError_t (*free_host)(void *data);
    cudaError_t (*stream_create_with_flags)(cudaStream_t *stream, unsigned flags);
    cudaError_t (*stream_destroy)(cudaStream_t stream);
    cudaError_t (*stream_synchronize)(cudaStream_t stream);
    cudaError_t (*stream_wait_event)(cudaStream_t stream, cudaEvent_t event, unsigned flags);
    cudaError_t (*event_create_with_flags)(cudaEvent_t *event, unsigned flags);
    cudaError_t (*event_destroy)(cudaEvent_t event);
    cudaError_t (*event_record)(cudaEvent_t event, cudaStream_t stream);

    // Kernels, on whole 8-byte words. Flags and counts lie in pinned memory.
    cudaError_t (*launch_fill)(cudaStream_t stream, void *data, size_t size_bytes, uint64_t seed);
    // Adds to *wrong the number of words that launch_fill would have written otherwise.
    cudaError_t (*launch_compare)(cudaStream_t stream, const void *data, size_t size_bytes, uint64_t seed,
                                  uint32_t *wrong);
    // Stands until *open is not 0; gives up after some seconds, and sets *gave_up.
    cudaError_t (*launch_gate)(cudaStream_t stream, const uint32_t *open, uint32_t *gave_up);
    // Multiplies on every multiprocessor until *ends is not 0, or for a minute.
    cudaError_t (*launch_load)(cudaStream_t stream, const uint32_t *ends);
};

// CUDA itself.
[[nodiscard]] const link_cuda &real_link_cuda();

}  // namespace ebb::link
