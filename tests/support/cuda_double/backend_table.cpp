// The backend's table of CUDA functions, over the double.
#include <fmt/core.h>

#include <cstring>

#include "cuda_double/cuda_double.hpp"
#include "cuda_double/double_core.hpp"

namespace ebb::test {
namespace {

using call = double_core::call;

// A call of the backend's by its name in the table, passed on to the core's function of another name, or the same.
#define EBB_PASS_ON(which, core_function, ...) \
    current_cuda_double().call_of_backend(     \
        cuda_call::which, [&](call &c) { return current_cuda_double().core_function(c __VA_OPT__(, ) __VA_ARGS__); })

cudaError_t driver_get_version(int *version) {
    return current_cuda_double().call_of_backend(cuda_call::driver_get_version, [&](call &) {
        *version = current_cuda_double().options().driver_version;
        return cudaSuccess;
    });
}

cudaError_t runtime_get_version(int *version) {
    return current_cuda_double().call_of_backend(cuda_call::runtime_get_version, [&](call &) {
        *version = CUDART_VERSION;
        return cudaSuccess;
    });
}

cudaError_t get_device_count(int *count) {
    return EBB_PASS_ON(get_device_count, get_device_count, count);
}
cudaError_t push_device(int ordinal) {
    return EBB_PASS_ON(push_device, push_device, ordinal);
}
cudaError_t pop_device() {
    return EBB_PASS_ON(pop_device, pop_device);
}
cudaError_t device_in_use(int ordinal, int *in_use) {
    return EBB_PASS_ON(device_in_use, device_in_use, ordinal, in_use);
}
cudaError_t has_context(int *has) {
    return EBB_PASS_ON(has_context, has_context, has);
}
cudaError_t device_get_attribute(int *value, cudaDeviceAttr attribute, int ordinal) {
    return EBB_PASS_ON(device_get_attribute, device_get_attribute, value, attribute, ordinal);
}

cudaError_t write_text(const std::string &text, char *out, size_t size_bytes) {
    if (text.size() + 1 > size_bytes) {
        return cudaErrorInvalidValue;
    }
    std::memcpy(out, text.c_str(), text.size() + 1);
    return cudaSuccess;
}

cudaError_t device_get_name(char *name, size_t size_bytes, int ordinal) {
    return current_cuda_double().call_of_backend(cuda_call::device_get_name, [&](call &) {
        const cudaError_t error = current_cuda_double().check_ordinal(ordinal);
        return error != cudaSuccess ? error : write_text("a double of a GPU", name, size_bytes);
    });
}

cudaError_t device_get_pci_bus_id(char *id, int size_bytes, int ordinal) {
    return current_cuda_double().call_of_backend(cuda_call::device_get_pci_bus_id, [&](call &) {
        const cudaError_t error = current_cuda_double().check_ordinal(ordinal);
        return error != cudaSuccess
                   ? error
                   : write_text(fmt::format("0000:{:02x}:00.0", ordinal + 1), id, static_cast<size_t>(size_bytes));
    });
}

cudaError_t peek_at_last_error() {
    return current_cuda_double().take_last_error(false);
}
cudaError_t get_last_error() {
    return current_cuda_double().take_last_error(true);
}

struct named_error {
    cudaError_t error;
    const char *name;
    const char *text;
};

const named_error &described(cudaError_t error) {
    static constexpr named_error k_errors[] = {
        {cudaSuccess, "cudaSuccess", "no error"},
        {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
        {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
        {cudaErrorCudartUnloading, "cudaErrorCudartUnloading", "driver shutting down"},
        {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
         "CUDA driver version is insufficient for CUDA runtime version"},
        {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
        {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
        {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
        {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
        {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
        {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
        {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
        {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
         "part or all of the requested memory range is already mapped"},
        {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
         "pointer does not correspond to a registered memory region"},
        {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
        {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
        {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
         "operation not permitted when stream is capturing"},
        {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
         "operation failed due to a previous error during capture"},
        {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
         "operation would result in a merge of separate capture sequences"},
        {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
         "capture was not ended in the same stream as it began"},
        {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
        {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
         "dependency created on uncaptured work in another stream"},
        {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
         "operation would make the legacy stream depend on a capturing blocking stream"},
        {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
         "operation not permitted on an event last recorded in a capturing stream"},
        {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
         "attempt to terminate a thread-local capture sequence from another thread"},
        {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
    };
    for (const named_error &each : k_errors) {
        if (each.error == error) {
            return each;
        }
    }
    static constexpr named_error k_other = {cudaErrorUnknown, "unrecognized error code", "unrecognized error code"};
    return k_other;
}

const char *get_error_name(cudaError_t error) {
    return described(error).name;
}
const char *get_error_string(cudaError_t error) {
    return described(error).text;
}

cudaError_t mem_get_info(size_t *free_bytes, size_t *total_bytes) {
    return EBB_PASS_ON(mem_get_info, mem_get_info, free_bytes, total_bytes);
}
cudaError_t malloc_device(void **data, size_t size_bytes) {
    return EBB_PASS_ON(malloc, malloc, data, size_bytes);
}
cudaError_t free_device(void *data) {
    return EBB_PASS_ON(free, free, data);
}
cudaError_t host_alloc(void **data, size_t size_bytes, unsigned flags) {
    return EBB_PASS_ON(host_alloc, host_alloc, data, size_bytes, flags);
}
cudaError_t free_host(void *data) {
    return EBB_PASS_ON(free_host, free_host, data);
}
cudaError_t host_register(void *data, size_t size_bytes, unsigned flags) {
    return EBB_PASS_ON(host_register, host_register, data, size_bytes, flags);
}
cudaError_t host_unregister(void *data) {
    return EBB_PASS_ON(host_unregister, host_unregister, data);
}

cudaError_t stream_create_with_flags(cudaStream_t *stream, unsigned flags) {
    return EBB_PASS_ON(stream_create_with_flags, stream_create, stream, flags);
}
cudaError_t stream_destroy(cudaStream_t stream) {
    return EBB_PASS_ON(stream_destroy, stream_destroy, stream);
}
cudaError_t stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    return EBB_PASS_ON(stream_wait_event, stream_wait_event, stream, event, flags);
}
cudaError_t stream_get_capture_info(cudaStream_t stream, cudaStreamCaptureStatus *status, unsigned long long *id) {
    return EBB_PASS_ON(stream_get_capture_info, capture_info, stream, status, id);
}
cudaError_t thread_exchange_stream_capture_mode(cudaStreamCaptureMode *mode) {
    return EBB_PASS_ON(thread_exchange_stream_capture_mode, exchange_capture_mode, mode);
}
cudaError_t event_create_with_flags(cudaEvent_t *event, unsigned flags) {
    return EBB_PASS_ON(event_create_with_flags, event_create, event, flags);
}
cudaError_t event_destroy(cudaEvent_t event) {
    return EBB_PASS_ON(event_destroy, event_destroy, event);
}
cudaError_t event_record(cudaEvent_t event, cudaStream_t stream) {
    return EBB_PASS_ON(event_record, event_record, event, stream);
}
cudaError_t event_query(cudaEvent_t event) {
    return EBB_PASS_ON(event_query, event_query, event);
}
cudaError_t event_synchronize(cudaEvent_t event) {
    return EBB_PASS_ON(event_synchronize, event_synchronize, event);
}
cudaError_t event_elapsed_time(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    return EBB_PASS_ON(event_elapsed_time, event_elapsed_time, milliseconds, start, end);
}

cudaError_t memcpy_async(void *destination, const void *source, size_t size_bytes, cudaMemcpyKind kind,
                         cudaStream_t stream) {
    return EBB_PASS_ON(memcpy_async, memcpy_async, destination, source, size_bytes, kind, stream);
}
cudaError_t memcpy_batch_async(void *const *destinations, const void *const *sources, const size_t *sizes_bytes,
                               size_t count, cudaMemcpyAttributes *attributes, size_t *attribute_indices,
                               size_t attribute_count, cudaStream_t stream) {
    return EBB_PASS_ON(memcpy_batch_async, memcpy_batch_async, destinations, sources, sizes_bytes, count, attributes,
                       attribute_indices, attribute_count, stream);
}
cudaError_t launch_checksum(cudaStream_t stream, const void *data, uint64_t size_bytes, uint64_t *accumulator,
                            void *scratch) {
    const uncounted allocations;
    std::vector<double_core::kernel_range> ranges = {{accumulator, sizeof *accumulator, true},
                                                     {scratch, k_checksum_scratch_bytes, true}};
    if (size_bytes > 0) {
        ranges.push_back({data, size_bytes, false});
    }
    const auto run = [=] {
        const uint64_t sum = checksum_bytes(*accumulator, data, size_bytes);
        std::memcpy(scratch, &sum, sizeof sum);
        *accumulator = sum;
    };
    return EBB_PASS_ON(launch_checksum, launch, stream, fmt::format("the sum of {} bytes", size_bytes), ranges, run);
}

#undef EBB_PASS_ON

}  // namespace

cuda_api double_cuda_api(const cuda_double_options &options) {
    cuda_api table{};
    table.driver_get_version = driver_get_version;
    table.runtime_get_version = runtime_get_version;
    table.get_device_count = get_device_count;
    table.push_device = push_device;
    table.pop_device = pop_device;
    table.device_in_use = device_in_use;
    table.has_context = has_context;
    table.device_get_attribute = device_get_attribute;
    table.device_get_name = device_get_name;
    table.device_get_pci_bus_id = device_get_pci_bus_id;
    table.peek_at_last_error = peek_at_last_error;
    table.get_last_error = get_last_error;
    table.get_error_name = get_error_name;
    table.get_error_string = get_error_string;
    table.mem_get_info = mem_get_info;
    table.malloc = malloc_device;
    table.free = free_device;
    table.host_alloc = host_alloc;
    table.free_host = free_host;
    table.host_register = host_register;
    table.host_unregister = host_unregister;
    table.stream_create_with_flags = stream_create_with_flags;
    table.stream_destroy = stream_destroy;
    table.stream_wait_event = stream_wait_event;
    table.stream_get_capture_info = stream_get_capture_info;
    table.thread_exchange_stream_capture_mode = thread_exchange_stream_capture_mode;
    table.event_create_with_flags = event_create_with_flags;
    table.event_destroy = event_destroy;
    table.event_record = event_record;
    table.event_query = event_query;
    table.event_synchronize = event_synchronize;
    table.event_elapsed_time = event_elapsed_time;
    table.memcpy_async = memcpy_async;
    table.memcpy_batch_async = options.has_batches ? memcpy_batch_async : nullptr;
    table.launch_checksum = launch_checksum;
    return table;
}

}  // namespace ebb::test
