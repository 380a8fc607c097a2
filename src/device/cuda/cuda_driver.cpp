#include "device/cuda/cuda_driver.hpp"

#include <fmt/core.h>

namespace ebb {
namespace {

status unusable(const module_driver &found, const std::string &why, const char *advice) {
    return {code::device_error,
            fmt::format("an NVIDIA driver is installed (for CUDA {}) and cannot be used: {}; this "
                        "build of Ebb has the runtime of CUDA {}; {}, or set device to \"host\"",
                        version_text(found.driver_version), why, version_text(found.runtime_version), advice)};
}

const char *advice_for(cudaError_t error) noexcept {
    switch (error) {
        case cudaErrorInsufficientDriver:
            return "install a driver that is at least as new as the runtime";
        case cudaErrorNoDevice:
            return "see whether CUDA_VISIBLE_DEVICES hides all GPUs, and whether the container was given any";
        case cudaErrorSystemDriverMismatch:
            return "the driver's library and the kernel's module are of different versions: reboot, or reload the "
                   "module";
        case cudaErrorSystemNotReady:
            return "start the fabric manager (nvidia-fabricmanager)";
        default:
            return "see what nvidia-smi says";
    }
}

// Leaves no error behind that the caller could take for its own.
status failed(const cuda_api &api, const module_driver &found, const char *function, cudaError_t error) {
    if (api.peek_at_last_error() == error) {
        static_cast<void>(api.get_last_error());
    }
    return unusable(
        found, fmt::format("{} failed with {} ({})", function, api.get_error_name(error), api.get_error_string(error)),
        advice_for(error));
}

}  // namespace

std::string version_text(int32_t version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

status probe_driver(const cuda_api &api, module_driver &found) {
    found = {};
    static_cast<void>(api.runtime_get_version(&found.runtime_version));
    // Answers 0 where no driver is installed.
    if (const cudaError_t error = api.driver_get_version(&found.driver_version); error != cudaSuccess) {
        return failed(api, found, "cudaDriverGetVersion", error);
    }
    if (found.driver_version == 0) {
        return {};
    }
    int count = 0;
    if (const cudaError_t error = api.get_device_count(&count); error != cudaSuccess) {
        return failed(api, found, "cudaGetDeviceCount", error);
    }
    found.device_count = count;
    return count > 0 ? status{} : unusable(found, "it shows no GPU", advice_for(cudaErrorNoDevice));
}

}  // namespace ebb
