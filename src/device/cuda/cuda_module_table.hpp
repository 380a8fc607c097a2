// A CUDA device as a module's table of C functions.
#pragma once

#include "device/cuda/cuda_api.hpp"
#include "device/module/device_module.hpp"

namespace ebb {

// The CUDA functions outlive the table.
[[nodiscard]] device_module make_cuda_module_table(const cuda_api &api);

}  // namespace ebb
