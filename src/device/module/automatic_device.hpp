// Which device "auto" stands for, and whether the CUDA device can be had at all.
#pragma once

#include "base/status.hpp"
#include "device/module/device_module.hpp"

namespace ebb {

// Ok when there is a driver that can be used, with at least one device.
[[nodiscard]] status check_driver(const device_module &module);

// The module of the device to take, null for the host device: that is taken only where no NVIDIA driver is installed.
// One that is installed and cannot be used is an error, as is a missing backend beside it: a training run that
// silently went on without its GPU helps nobody. driver_is_installed is asked where the backend itself cannot be.
result<const device_module *> choose_automatic(const result<const device_module *> &module,
                                               bool (*driver_is_installed)());

}  // namespace ebb
