// Devices by name: what the option "device" may say.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

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
};

// "host", "null", "sim", or "auto": the best that is present. Of a simulated machine what follows the name changes it:
// "sim:device_bytes=80G,latency_ns=5000" (sim/sim_settings.hpp).
result<std::unique_ptr<device>> make_device(std::string_view name, int32_t ordinal, const device_options &options);

}  // namespace ebb
