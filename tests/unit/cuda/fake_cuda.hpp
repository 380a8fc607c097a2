// CUDA functions that answer what a test sets and do nothing: for what the backend asks and says, not for what runs on
// a GPU. One at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/cuda_api.hpp"

namespace ebb {

class fake_cuda {
public:
    fake_cuda() {
        current_ = this;
        api.driver_get_version = [](int *version) {
            return answer("driver_get_version", *version = at().driver_version);
        };
        api.runtime_get_version = [](int *version) { return answer("runtime_get_version", *version = 13000); };
        api.get_device_count = [](int *count) { return answer("get_device_count", *count = at().devices); };
        api.push_device = [](int ordinal) {
            at().pushed.push_back(ordinal);
            return answer("push_device", 0);
        };
        api.pop_device = [] {
            at().pushed.pop_back();
            return answer("pop_device", 0);
        };
        api.device_in_use = [](int ordinal, int *alive) {
            return answer("device_in_use", *alive = at().in_use.count(ordinal) != 0 ? 1 : 0);
        };
        api.has_context = [](int *has) {
            *has = 1;
            return cudaSuccess;
        };
        api.device_get_attribute = [](int *value, cudaDeviceAttr attribute, int) {
            return answer("device_get_attribute", *value = at().attributes[attribute]);
        };
        api.device_get_name = [](char *name, size_t size_bytes, int) {
            std::snprintf(name, size_bytes, "Fake GPU");
            return answer("device_get_name", 0);
        };
        api.device_get_pci_bus_id = [](char *id, int size_bytes, int) {
            std::snprintf(id, static_cast<size_t>(size_bytes), "%s", at().bus_id.c_str());
            return answer("device_get_pci_bus_id", 0);
        };
        set_error_functions();
        set_memory_functions();
        set_stream_functions();
    }
    ~fake_cuda() {
        // What a lost device or the end of the process took with it, and what its user leaves out.
        for (void *base : taken_) {
            std::free(base);
        }
        current_ = nullptr;
    }
    fake_cuda(const fake_cuda &) = delete;
    fake_cuda &operator=(const fake_cuda &) = delete;

    cuda_api api{};

    int driver_version = 13000;
    int devices = 1;
    std::map<int, int> in_use;
    std::map<cudaDeviceAttr, int> attributes{{cudaDevAttrHostNumaId, -1}, {cudaDevAttrComputeCapabilityMajor, 9}};
    std::string bus_id = "0000:3B:00.0";
    float elapsed_milliseconds = 1;
    size_t misalign_bytes = 0;                    // of what host_alloc and malloc give
    std::map<std::string, cudaError_t> failures;  // by function
    cudaError_t last_error = cudaSuccess;

    std::map<std::string, int> calls;
    int all_calls = 0;
    std::vector<int> pushed;
    size_t taken_bytes = 0;            // by the last allocation
    std::vector<unsigned> host_flags;  // of each registration and allocation
    std::vector<int> copies_on;        // of each copy, its stream's device
    std::vector<size_t> batches;
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;

private:
    static fake_cuda &at() { return *current_; }
    // What comes before it in a call's arguments has set its values.
    static cudaError_t answer(const char *function, int /*set*/) {
        ++at().calls[function];
        ++at().all_calls;
        const auto failure = at().failures.find(function);
        if (failure == at().failures.end()) {
            return cudaSuccess;
        }
        at().last_error = failure->second;
        return failure->second;
    }

    void set_error_functions() {
        api.peek_at_last_error = [] { return at().last_error; };
        api.get_last_error = [] { return std::exchange(at().last_error, cudaSuccess); };
        api.get_error_name = [](cudaError_t error) {
            switch (error) {
                case cudaErrorMemoryAllocation:
                    return "cudaErrorMemoryAllocation";
                case cudaErrorIllegalAddress:
                    return "cudaErrorIllegalAddress";
                case cudaErrorInsufficientDriver:
                    return "cudaErrorInsufficientDriver";
                default:
                    return "cudaErrorOther";
            }
        };
        api.get_error_string = [](cudaError_t) { return "as it is told"; };
    }
    void set_memory_functions() {
        api.mem_get_info = [](size_t *free_bytes, size_t *total_bytes) {
            *total_bytes = 1U << 30U;
            return answer("mem_get_info", static_cast<int>(*free_bytes = 1U << 29U));
        };
        api.malloc = [](void **data, size_t size_bytes) {
            *data = take(size_bytes);
            return answer("malloc", 0);
        };
        api.free = [](void *data) { return give("free", data); };
        api.host_alloc = [](void **data, size_t size_bytes, unsigned flags) {
            at().host_flags.push_back(flags);
            *data = take(size_bytes);
            return answer("host_alloc", 0);
        };
        api.free_host = [](void *data) { return give("free_host", data); };
        api.host_register = [](void *, size_t, unsigned flags) {
            at().host_flags.push_back(flags);
            return answer("host_register", 0);
        };
        api.host_unregister = [](void *) { return answer("host_unregister", 0); };
    }
    static void *take(size_t size_bytes) {
        at().taken_bytes = size_bytes;
        constexpr size_t k_alignment = 4096;
        auto *base = static_cast<char *>(
            std::aligned_alloc(k_alignment, (size_bytes + 2 * k_alignment) / k_alignment * k_alignment));
        std::fill(base, base + size_bytes, char{0x77});
        const std::lock_guard lock(at().taken_mutex_);
        at().taken_.insert(base);
        return base + at().misalign_bytes;
    }
    static cudaError_t give(const char *function, void *data) {
        void *base = static_cast<char *>(data) - at().misalign_bytes;
        {
            const std::lock_guard lock(at().taken_mutex_);
            if (at().taken_.erase(base) != 0) {
                std::free(base);
            }
        }
        return answer(function, 0);
    }
    // A stream's handle says which device was current.
    void set_stream_functions() {
        api.stream_create_with_flags = [](cudaStream_t *stream, unsigned) {
            const auto ordinal = static_cast<uintptr_t>(at().pushed.empty() ? 0 : at().pushed.back());
            *stream = reinterpret_cast<cudaStream_t>((ordinal + 1) << 20U);
            return answer("stream_create_with_flags", 0);
        };
        api.stream_destroy = [](cudaStream_t) { return answer("stream_destroy", 0); };
        api.stream_wait_event = [](cudaStream_t, cudaEvent_t, unsigned) { return answer("stream_wait_event", 0); };
        api.stream_get_capture_info = [](cudaStream_t, cudaStreamCaptureStatus *status, unsigned long long *id) {
            *status = at().capture;
            return answer("stream_get_capture_info", static_cast<int>(*id = 7));
        };
        api.thread_exchange_stream_capture_mode = [](cudaStreamCaptureMode *exchanged) {
            std::swap(*exchanged, at().mode);
            return cudaSuccess;
        };
        api.event_create_with_flags = [](cudaEvent_t *event, unsigned) {
            *event = reinterpret_cast<cudaEvent_t>(uintptr_t{4096});
            return answer("event_create_with_flags", 0);
        };
        api.event_destroy = [](cudaEvent_t) { return answer("event_destroy", 0); };
        api.event_record = [](cudaEvent_t, cudaStream_t) { return answer("event_record", 0); };
        api.event_query = [](cudaEvent_t) { return answer("event_query", 0); };
        api.event_synchronize = [](cudaEvent_t) { return answer("event_synchronize", 0); };
        api.event_elapsed_time = [](float *milliseconds, cudaEvent_t, cudaEvent_t) {
            *milliseconds = at().elapsed_milliseconds;
            return answer("event_elapsed_time", 0);
        };
        api.memcpy_async = [](void *, const void *, size_t, cudaMemcpyKind, cudaStream_t stream) {
            at().copies_on.push_back(static_cast<int>(reinterpret_cast<uintptr_t>(stream) >> 20U) - 1);
            return answer("memcpy_async", 0);
        };
        api.memcpy_batch_async = [](void *const *, const void *const *, const size_t *, size_t count,
                                    cudaMemcpyAttributes *chosen, size_t *, size_t, cudaStream_t) {
            at().batches.push_back(count);
            return answer("memcpy_batch_async", static_cast<int>(chosen->srcAccessOrder));
        };
        api.launch_checksum = [](cudaStream_t, const void *, uint64_t, uint64_t *, void *) {
            return answer("launch_checksum", 0);
        };
    }

    static inline fake_cuda *current_ = nullptr;
    std::mutex taken_mutex_;
    std::set<void *> taken_;
};

}  // namespace ebb
