#include "device/cuda/cuda_errors.hpp"

#include <fmt/core.h>

namespace ebb {
namespace {

code code_of(cudaError_t error) noexcept {
    switch (error) {
        case cudaErrorStreamCaptureUnsupported:
        case cudaErrorStreamCaptureInvalidated:
        case cudaErrorStreamCaptureMerge:
        case cudaErrorStreamCaptureUnmatched:
        case cudaErrorStreamCaptureUnjoined:
        case cudaErrorStreamCaptureIsolation:
        case cudaErrorStreamCaptureImplicit:
        case cudaErrorStreamCaptureWrongThread:
        case cudaErrorCapturedEvent:
            return code::wrong_state;
        case cudaErrorInvalidResourceHandle:
            return code::invalid_argument;
        default:
            return code::device_error;
    }
}

}  // namespace

bool is_sticky(cudaError_t error) noexcept {
    switch (error) {
        case cudaErrorCudartUnloading:
        case cudaErrorECCUncorrectable:
        case cudaErrorNvlinkUncorrectable:
        case cudaErrorContained:
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchTimeout:
        case cudaErrorAssert:
        case cudaErrorHardwareStackError:
        case cudaErrorIllegalInstruction:
        case cudaErrorMisalignedAddress:
        case cudaErrorInvalidAddressSpace:
        case cudaErrorInvalidPc:
        case cudaErrorLaunchFailure:
        case cudaErrorTensorMemoryLeak:
        case cudaErrorMpsClientTerminated:
        case cudaErrorExternalDevice:
            return true;
        default:
            return false;
    }
}

status cuda_errors::refusal() const {
    if (!lost_.load(std::memory_order_acquire)) {
        return {code::device_error, "the process is ending: no CUDA call is made any more"};
    }
    const std::lock_guard lock(mutex_);
    return {code::device_error, fmt::format("CUDA device {} is lost since an earlier call failed: {}; what is on the "
                                            "device is gone, and CUDA needs a new process",
                                            ordinal_, first_failure_)};
}

status cuda_errors::failure(cudaError_t error, const char *function, const std::string &what) {
    std::string text = fmt::format("{}: {} failed with {}", what, function, name(error));
    forget(error);
    if (is_sticky(error)) {
        const std::lock_guard lock(mutex_);
        if (first_failure_.empty()) {
            first_failure_ = text;
        }
        lost_.store(true, std::memory_order_release);
        return {code::device_error, std::move(text)};
    }
    return {code_of(error), std::move(text)};
}

void cuda_errors::forget(cudaError_t error) const {
    if (api_.peek_at_last_error() == error) {
        static_cast<void>(api_.get_last_error());
    }
}

std::string cuda_errors::name(cudaError_t error) const {
    return fmt::format("{} ({})", api_.get_error_name(error), api_.get_error_string(error));
}

}  // namespace ebb
