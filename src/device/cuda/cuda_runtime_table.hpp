// The CUDA functions as they really are.
#pragma once

#include "device/cuda/cuda_api.hpp"

namespace ebb {

// Calls nothing yet: it may be asked for where there is no driver.
[[nodiscard]] const cuda_api &cuda_runtime_table();

}  // namespace ebb
