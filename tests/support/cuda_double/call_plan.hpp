// The backend's CUDA calls, counted by function, and the one among them that is to fail.
#pragma once

#include <driver_types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ebb::test {

// The functions of cuda_api that can fail, by their names there.
#define EBB_CUDA_CALLS(X)                  \
    X(driver_get_version)                  \
    X(runtime_get_version)                 \
    X(get_device_count)                    \
    X(push_device)                         \
    X(pop_device)                          \
    X(device_in_use)                       \
    X(has_context)                         \
    X(device_get_attribute)                \
    X(device_get_name)                     \
    X(device_get_pci_bus_id)               \
    X(mem_get_info)                        \
    X(malloc)                              \
    X(free)                                \
    X(host_alloc)                          \
    X(free_host)                           \
    X(host_register)                       \
    X(host_unregister)                     \
    X(stream_create_with_flags)            \
    X(stream_destroy)                      \
    X(stream_wait_event)                   \
    X(stream_get_capture_info)             \
    X(thread_exchange_stream_capture_mode) \
    X(event_create_with_flags)             \
    X(event_destroy)                       \
    X(event_record)                        \
    X(event_query)                         \
    X(event_synchronize)                   \
    X(event_elapsed_time)                  \
    X(memcpy_async)                        \
    X(memcpy_batch_async)                  \
    X(launch_checksum)

enum class cuda_call : uint8_t {
#define EBB_CUDA_CALL_NAME(name) name,
    EBB_CUDA_CALLS(EBB_CUDA_CALL_NAME)
#undef EBB_CUDA_CALL_NAME
        count
};

constexpr size_t k_cuda_call_count = static_cast<size_t>(cuda_call::count);

[[nodiscard]] constexpr const char *name_of(cuda_call call) noexcept {
    constexpr std::array<const char *, k_cuda_call_count> k_names = {
#define EBB_CUDA_CALL_TEXT(name) #name,
        EBB_CUDA_CALLS(EBB_CUDA_CALL_TEXT)
#undef EBB_CUDA_CALL_TEXT
    };
    return k_names[static_cast<size_t>(call)];
}

// Of the driver: the runtime's last error knows nothing of its failures.
[[nodiscard]] constexpr bool is_of_driver(cuda_call call) noexcept {
    return call == cuda_call::push_device || call == cuda_call::pop_device || call == cuda_call::device_in_use ||
           call == cuda_call::has_context;
}

// What such a call would have ended stays: nobody can be blamed for it.
[[nodiscard]] constexpr bool gives_back(cuda_call call) noexcept {
    return call == cuda_call::free || call == cuda_call::free_host || call == cuda_call::host_unregister ||
           call == cuda_call::stream_destroy || call == cuda_call::event_destroy;
}

struct planned_failure {
    uint64_t after_calls = 0;       // so many more calls, of that function or of all, succeed
    std::optional<cuda_call> only;  // of this function alone
    cudaError_t error = cudaErrorUnknown;
    bool breaks_the_device = false;  // from then on every call on that device fails
};

class call_plan {
public:
    void set(const planned_failure &failure) { failure_ = failure; }
    void clear() { failure_.reset(); }
    [[nodiscard]] bool pending() const { return failure_.has_value(); }

    // Counts the call; the failure if it is this one.
    std::optional<planned_failure> next(cuda_call call) {
        ++counts_[static_cast<size_t>(call)];
        if (!failure_ || (failure_->only && *failure_->only != call)) {
            return std::nullopt;
        }
        if (failure_->after_calls > 0) {
            --failure_->after_calls;
            return std::nullopt;
        }
        const std::optional<planned_failure> hit = failure_;
        failure_.reset();
        last_hit_ = call;
        kept_something_ = kept_something_ || gives_back(call);
        return hit;
    }

    [[nodiscard]] uint64_t count(cuda_call call) const { return counts_[static_cast<size_t>(call)]; }
    [[nodiscard]] uint64_t count() const {
        uint64_t all = 0;
        for (const uint64_t each : counts_) {
            all += each;
        }
        return all;
    }
    [[nodiscard]] std::optional<cuda_call> last_hit() const { return last_hit_; }
    [[nodiscard]] bool kept_something() const { return kept_something_; }

private:
    std::array<uint64_t, k_cuda_call_count> counts_{};
    std::optional<planned_failure> failure_;
    std::optional<cuda_call> last_hit_;
    bool kept_something_ = false;
};

}  // namespace ebb::test
