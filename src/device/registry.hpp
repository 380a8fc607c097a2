// Devices by name: what the option "device" may say.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.hpp"
#include "device/device.hpp"
#include "device/null/null_device.hpp"

namespace ebb {

struct device_options {
    // The host device. No capacity given: 1 GiB, or half of what the control group and the system leave if that is
    // less.
    std::optional<uint64_t> host_capacity_bytes;
    uint64_t host_d2h_bytes_per_second = 0;  // 0: no limit
    uint64_t host_h2d_bytes_per_second = 0;
    std::string host_system_root = "/";
    uint32_t host_prefault_threads = 0;

    null_device_options null;

    // The CUDA device.
    bool calibrate = false;
    bool nvtx = false;
    std::string cuda_library;     // empty: beside this library
    const logger *log = nullptr;  // what a user should be told while the device is made; null: nobody is told
};

// "cuda", "host", "null", "sim", or "auto": the GPU, and the host device only where no NVIDIA driver is installed,
// which is said once per process. Of a simulated machine what follows the name changes it:
// "sim:device_bytes=80G,latency_ns=5000" (sim/sim_settings.hpp).
result<std::unique_ptr<device>> make_device(std::string_view name, int32_t ordinal, const device_options &options);

// The names of the devices that this process can make, "host null sim cuda": cuda where its backend is built in or can
// be loaded.
[[nodiscard]] std::string device_names(const std::string &cuda_library);

}  // namespace ebb
