// All-reduces in a row on all GPUs of the machine, as a load on links and memory.
#pragma once

#include "link/cuda_link_kernels.hpp"

namespace ebb::link {

// Empty where there is no NCCL.
[[nodiscard]] begin_collectives nccl_collectives();

}  // namespace ebb::link
