// Whether the machine has a driver that this build of the backend can use.
#pragma once

#include <string>

#include "base/status.hpp"
#include "device/cuda/cuda_api.hpp"
#include "device/module/device_module.hpp"

namespace ebb {

// Ok with driver_version 0 where none is installed.
[[nodiscard]] status probe_driver(const cuda_api &api, module_driver &found);

// "13.0" of 13000.
[[nodiscard]] std::string version_text(int32_t version);

}  // namespace ebb
