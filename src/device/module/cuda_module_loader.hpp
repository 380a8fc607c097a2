// Finds the CUDA backend: built into a static libebb, else the library libebb_cuda.
#pragma once

#include <string>

#include "base/status.hpp"
#include "device/module/device_module.hpp"

namespace ebb {

// file: the library to load; empty: the one that is built in, else libebb_cuda.so in the folder that libebb itself was
// loaded from. It is never unloaded. Unsupported, with the file's name and what is wrong with it, when there is none.
result<const device_module *> load_cuda_module(const std::string &file);

// Whether the system has NVIDIA's driver, asked without the backend.
[[nodiscard]] bool nvidia_driver_is_installed();

}  // namespace ebb
