// The functions of the CUDA runtime that the backend uses, as a table: all of CUDA goes through it, so that the backend
// can be run on the tests' double, which knows CUDA's rules and needs no GPU. Names and meaning are the runtime's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ebb {

struct cuda_api {
    // Versions, devices, errors.
    cudaError_t (*driver_get_version)(int *version);
    cudaError_t (*runtime_get_version)(int *version);
    cudaError_t (*get_device_count)(int *count);
    // The driver's cuCtxPushCurrent of the device's primary context, and cuCtxPopCurrent: unlike with cudaSetDevice the
    // thread afterwards is as it was, also where it had no current device or a context of its own, and no context comes
    // to life on a device that nobody uses.
    cudaError_t (*push_device)(int ordinal);
    cudaError_t (*pop_device)();
    // Whether the device's primary context is alive in this process.
    cudaError_t (*device_in_use)(int ordinal, int *in_use);
    // Whether the calling thread has a current context. Where it has none, the runtime's next call makes one, on the
    // first device if the thread never named one.
    cudaError_t (*has_context)(int *has);
    cudaError_t (*device_get_attribute)(int *value, cudaDeviceAttr attribute, int ordinal);
    cudaError_t (*device_get_name)(char *name, size_t size_bytes, int ordinal);  // of cudaGetDeviceProperties
    cudaError_t (*device_get_pci_bus_id)(char *id, int size_bytes, int ordinal);
    cudaError_t (*peek_at_last_error)();
    cudaError_t (*get_last_error)();
    const char *(*get_error_name)(cudaError_t error);
    const char *(*get_error_string)(cudaError_t error);

    // Memory.
    cudaError_t (*mem_get_info)(size_t *free_bytes, size_t *total_bytes);
    cudaError_t (*malloc)(void **data, size_t size_bytes);
    cudaError_t (*free)(void *data);
    cudaError_t (*host_alloc)(void **data, size_t size_bytes, unsigned flags);
    cudaError_t (*free_host)(void *data);
    cudaError_t (*host_register)(void *data, size_t size_bytes, unsigned flags);
    cudaError_t (*host_unregister)(void *data);

    // Streams, captures and events.
    cudaError_t (*stream_create_with_flags)(cudaStream_t *stream, unsigned flags);
    cudaError_t (*stream_destroy)(cudaStream_t stream);
    cudaError_t (*stream_wait_event)(cudaStream_t stream, cudaEvent_t event, unsigned flags);
    cudaError_t (*stream_get_capture_info)(cudaStream_t stream, cudaStreamCaptureStatus *status,
                                           unsigned long long *id);
    cudaError_t (*thread_exchange_stream_capture_mode)(cudaStreamCaptureMode *mode);
    cudaError_t (*event_create_with_flags)(cudaEvent_t *event, unsigned flags);
    cudaError_t (*event_destroy)(cudaEvent_t event);
    cudaError_t (*event_record)(cudaEvent_t event, cudaStream_t stream);
    cudaError_t (*event_query)(cudaEvent_t event);
    cudaError_t (*event_synchronize)(cudaEvent_t event);
    cudaError_t (*event_elapsed_time)(float *milliseconds, cudaEvent_t start, cudaEvent_t end);

    // Copies. memcpy_batch_async is null where the runtime or the driver has none.
    cudaError_t (*memcpy_async)(void *destination, const void *source, size_t size_bytes, cudaMemcpyKind kind,
                                cudaStream_t stream);
    cudaError_t (*memcpy_batch_async)(void *const *destinations, const void *const *sources, const size_t *sizes_bytes,
                                      size_t count, cudaMemcpyAttributes *attributes, size_t *attribute_indices,
                                      size_t attribute_count, cudaStream_t stream);
    // Our own kernel (kernels.cu): *accumulator = checksum_bytes(*accumulator, data, size_bytes). The accumulator and
    // the scratch memory, of k_checksum_scratch_bytes, must be reachable from the device.
    cudaError_t (*launch_checksum)(cudaStream_t stream, const void *data, uint64_t size_bytes, uint64_t *accumulator,
                                   void *scratch);
};

constexpr size_t k_checksum_scratch_bytes = 64 * 1024;

}  // namespace ebb
