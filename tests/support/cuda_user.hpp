// CUDA as a program that uses Ebb uses it: the caller's side in tests, as a table. The double fills it in, and so does
// real CUDA where there is a GPU, so kernels are a few fixed ones.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ebb::test {

// What launch_fill writes into 8-byte word `word`.
constexpr uint64_t filled_word(uint64_t seed, uint64_t word) {
    return (seed + 1) * 0x9E3779B97F4A7C15ULL + word * 0xBF58476D1CE4E5B9ULL;
}

struct cuda_user {
    // Devices and errors.
    cudaError_t (*get_device)(int *ordinal);
    cudaError_t (*set_device)(int ordinal);
    cudaError_t (*device_synchronize)();
    cudaError_t (*get_last_error)();
    cudaError_t (*peek_at_last_error)();

    // Memory.
    cudaError_t (*mem_get_info)(size_t *free_bytes, size_t *total_bytes);
    cudaError_t (*malloc)(void **data, size_t size_bytes);
    cudaError_t (*free)(void *data);
    cudaError_t (*host_alloc)(void **data, size_t size_bytes, unsigned flags);
    cudaError_t (*free_host)(void *data);
    cudaError_t (*memcpy)(void *destination, const void *source, size_t size_bytes, cudaMemcpyKind kind);
    cudaError_t (*memcpy_async)(void *destination, const void *source, size_t size_bytes, cudaMemcpyKind kind,
                                cudaStream_t stream);
    cudaError_t (*memset_async)(void *data, int value, size_t size_bytes, cudaStream_t stream);

    // Streams and events.
    cudaError_t (*stream_create_with_flags)(cudaStream_t *stream, unsigned flags);
    cudaError_t (*stream_destroy)(cudaStream_t stream);
    cudaError_t (*stream_query)(cudaStream_t stream);
    cudaError_t (*stream_synchronize)(cudaStream_t stream);
    cudaError_t (*stream_wait_event)(cudaStream_t stream, cudaEvent_t event, unsigned flags);
    cudaError_t (*event_create_with_flags)(cudaEvent_t *event, unsigned flags);
    cudaError_t (*event_destroy)(cudaEvent_t event);
    cudaError_t (*event_record)(cudaEvent_t event, cudaStream_t stream);
    cudaError_t (*event_query)(cudaEvent_t event);
    cudaError_t (*event_synchronize)(cudaEvent_t event);

    // Captures and graphs.
    cudaError_t (*stream_begin_capture)(cudaStream_t stream, cudaStreamCaptureMode mode);
    cudaError_t (*stream_end_capture)(cudaStream_t stream, cudaGraph_t *graph);
    cudaError_t (*stream_is_capturing)(cudaStream_t stream, cudaStreamCaptureStatus *status);
    cudaError_t (*thread_exchange_stream_capture_mode)(cudaStreamCaptureMode *mode);
    cudaError_t (*graph_instantiate)(cudaGraphExec_t *exec, cudaGraph_t graph);
    cudaError_t (*graph_launch)(cudaGraphExec_t exec, cudaStream_t stream);
    cudaError_t (*graph_exec_destroy)(cudaGraphExec_t exec);
    cudaError_t (*graph_destroy)(cudaGraph_t graph);

    // Kernels, on device or pinned memory of whole 8-byte words.
    cudaError_t (*launch_fill)(cudaStream_t stream, void *data, size_t size_bytes, uint64_t seed);
    cudaError_t (*launch_add)(cudaStream_t stream, void *data, size_t size_bytes, uint64_t value);  // to each word
    cudaError_t (*launch_xor)(cudaStream_t stream, void *data, size_t size_bytes, uint64_t value);
    // Adds to *wrong, in device or pinned memory, the number of words that launch_fill would have written otherwise.
    cudaError_t (*launch_compare)(cudaStream_t stream, const void *data, size_t size_bytes, uint64_t seed,
                                  uint32_t *wrong);
    // Stands until *flag, in pinned memory, is not 0.
    cudaError_t (*launch_wait)(cudaStream_t stream, const uint32_t *flag);
};

}  // namespace ebb::test
