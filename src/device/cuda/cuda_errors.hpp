// CUDA's errors as statuses: each with CUDA's name, the function and what it was for. An error that CUDA keeps
// returning from then on (an illegal address, say) is remembered: the device is lost, and nobody asks CUDA again.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "base/status.hpp"
#include "device/cuda/cuda_api.hpp"
#include "device/cuda/process_exit.hpp"

namespace ebb {

class cuda_errors {
public:
    cuda_errors(const cuda_api &api, int32_t ordinal) : api_(api), ordinal_(ordinal) {}

    // False once the device is lost or the process ends: then no CUDA function may be called, and refusal() says why.
    [[nodiscard]] bool usable() const noexcept {
        return !lost_.load(std::memory_order_acquire) && !process_exit_began();
    }
    [[nodiscard]] status refusal() const;

    // `what` gives the text of what the call was for, and is called on failure alone.
    template <class What>
    [[nodiscard]] status check(cudaError_t error, const char *function, const What &what) {
        return error == cudaSuccess ? status{} : failure(error, function, what());
    }
    // Also takes the error out of the thread's CUDA state if it is there, so that the caller's next look at it does not
    // find ours.
    [[nodiscard]] status failure(cudaError_t error, const char *function, const std::string &what);
    // For answers that are no failures (cudaErrorNotReady).
    void forget(cudaError_t error) const;
    // For what is given back, where nobody can do anything about a failure.
    void ignore(cudaError_t error) const {
        if (error != cudaSuccess) {
            forget(error);
        }
    }

    // "cudaErrorInvalidValue (invalid argument)".
    [[nodiscard]] std::string name(cudaError_t error) const;

private:
    const cuda_api &api_;
    const int32_t ordinal_;
    std::atomic<bool> lost_{false};
    mutable std::mutex mutex_;
    std::string first_failure_;  // written once, before lost_ is set
};

// Whether CUDA returns it from every later call of the process.
[[nodiscard]] bool is_sticky(cudaError_t error) noexcept;

}  // namespace ebb
