#include "device/cuda/cuda_runtime_table.hpp"

#include <cudaTypedefs.h>

#include <array>
#include <atomic>
#include <cstring>

#include "device/cuda/kernels.hpp"

namespace ebb {
namespace {

// ------------------------------------------------------------------------------------- driver functions --

// Those of the driver's own functions that the runtime has no equal of. The driver is reached through the runtime,
// since linking it would keep a program from starting where there is none.
struct driver_functions {
    PFN_cuDevicePrimaryCtxRetain_v7000 retain_primary = nullptr;
    PFN_cuDevicePrimaryCtxGetState_v7000 primary_state = nullptr;
    PFN_cuCtxGetCurrent_v4000 current = nullptr;
    PFN_cuCtxPushCurrent_v4000 push = nullptr;
    PFN_cuCtxPopCurrent_v4000 pop = nullptr;
    cudaError_t error = cudaSuccess;
};

template <class Function>
void find(driver_functions &all, Function &function, const char *name, unsigned version) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult answer = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &answer);
    if (error != cudaSuccess || answer != cudaDriverEntryPointSuccess || found == nullptr) {
        all.error = error != cudaSuccess ? error : cudaErrorSymbolNotFound;
        return;
    }
    static_assert(sizeof(function) == sizeof(found));
    std::memcpy(&function, &found, sizeof(function));
}

const driver_functions &driver() {
    static const driver_functions functions = [] {
        driver_functions found;
        find(found, found.retain_primary, "cuDevicePrimaryCtxRetain", 7000);
        find(found, found.primary_state, "cuDevicePrimaryCtxGetState", 7000);
        find(found, found.current, "cuCtxGetCurrent", 4000);
        find(found, found.push, "cuCtxPushCurrent", 4000);
        find(found, found.pop, "cuCtxPopCurrent", 4000);
        return found;
    }();
    return functions;
}

// The numbers of the two enums agree.
cudaError_t as_runtime_error(CUresult error) noexcept {
    return static_cast<cudaError_t>(error);
}

// A device's primary context, kept alive from its first use on, as the runtime does.
cudaError_t primary_context(int ordinal, CUcontext &context) {
    constexpr size_t k_most_devices = 256;
    static std::array<std::atomic<CUcontext>, k_most_devices> known{};
    if (ordinal < 0 || static_cast<size_t>(ordinal) >= k_most_devices) {
        return cudaErrorInvalidDevice;
    }
    std::atomic<CUcontext> &mine = known[static_cast<size_t>(ordinal)];
    context = mine.load(std::memory_order_acquire);
    if (context != nullptr) {
        return cudaSuccess;
    }
    const CUresult error = driver().retain_primary(&context, ordinal);
    if (error == CUDA_SUCCESS) {
        mine.store(context, std::memory_order_release);
    }
    return as_runtime_error(error);
}

cudaError_t push_device(int ordinal) {
    if (driver().error != cudaSuccess) {
        return driver().error;
    }
    CUcontext context = nullptr;
    const cudaError_t error = primary_context(ordinal, context);
    return error == cudaSuccess ? as_runtime_error(driver().push(context)) : error;
}

cudaError_t pop_device() {
    if (driver().error != cudaSuccess || driver().pop == nullptr) {
        return cudaErrorSymbolNotFound;
    }
    CUcontext popped = nullptr;
    return as_runtime_error(driver().pop(&popped));
}

cudaError_t device_in_use(int ordinal, int *in_use) {
    if (driver().error != cudaSuccess) {
        return driver().error;
    }
    unsigned flags = 0;
    return as_runtime_error(driver().primary_state(ordinal, &flags, in_use));
}

cudaError_t has_context(int *has) {
    if (driver().error != cudaSuccess) {
        return driver().error;
    }
    CUcontext context = nullptr;
    const CUresult error = driver().current(&context);
    *has = context != nullptr ? 1 : 0;
    return as_runtime_error(error);
}

// ---------------------------------------------------------------------------- functions in another form --

cudaError_t device_get_name(char *name, size_t size_bytes, int ordinal) {
    cudaDeviceProp properties{};
    const cudaError_t error = cudaGetDeviceProperties(&properties, ordinal);
    if (error == cudaSuccess && size_bytes > 0) {
        std::strncpy(name, properties.name, size_bytes - 1);
        name[size_bytes - 1] = '\0';
    }
    return error;
}

cudaError_t stream_get_capture_info(cudaStream_t stream, cudaStreamCaptureStatus *state, unsigned long long *id) {
    return cudaStreamGetCaptureInfo(stream, state, id);
}

// The runtime's C++ headers overload some names: the types of the table choose.
cuda_api make_table() {
    cuda_api api{};
    api.driver_get_version = &cudaDriverGetVersion;
    api.runtime_get_version = &cudaRuntimeGetVersion;
    api.get_device_count = &cudaGetDeviceCount;
    api.push_device = &push_device;
    api.pop_device = &pop_device;
    api.device_in_use = &device_in_use;
    api.has_context = &has_context;
    api.device_get_attribute = &cudaDeviceGetAttribute;
    api.device_get_name = &device_get_name;
    api.device_get_pci_bus_id = &cudaDeviceGetPCIBusId;
    api.peek_at_last_error = &cudaPeekAtLastError;
    api.get_last_error = &cudaGetLastError;
    api.get_error_name = &cudaGetErrorName;
    api.get_error_string = &cudaGetErrorString;

    api.mem_get_info = &cudaMemGetInfo;
    api.malloc = &cudaMalloc;
    api.free = &cudaFree;
    api.host_alloc = &cudaHostAlloc;
    api.free_host = &cudaFreeHost;
    api.host_register = &cudaHostRegister;
    api.host_unregister = &cudaHostUnregister;

    api.stream_create_with_flags = &cudaStreamCreateWithFlags;
    api.stream_destroy = &cudaStreamDestroy;
    api.stream_wait_event = &cudaStreamWaitEvent;
    api.stream_get_capture_info = &stream_get_capture_info;
    api.thread_exchange_stream_capture_mode = &cudaThreadExchangeStreamCaptureMode;
    api.event_create_with_flags = &cudaEventCreateWithFlags;
    api.event_destroy = &cudaEventDestroy;
    api.event_record = &cudaEventRecord;
    api.event_query = &cudaEventQuery;
    api.event_synchronize = &cudaEventSynchronize;
    api.event_elapsed_time = &cudaEventElapsedTime;

    api.memcpy_async = &cudaMemcpyAsync;
    api.memcpy_batch_async = &cudaMemcpyBatchAsync;
    api.launch_checksum = &launch_checksum;
    return api;
}

}  // namespace

const cuda_api &cuda_runtime_table() {
    static const cuda_api table = make_table();
    return table;
}

}  // namespace ebb
