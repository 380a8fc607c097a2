// Calls to CUDA, counted and timed on their way through the backend's table of them.
#pragma once

#include "device/cuda/cuda_api.hpp"
#include "link/link_rig.hpp"

namespace ebb::link {

// The same functions; there is one such table at a time, and `inner` outlives it.
[[nodiscard]] const cuda_api &count_cuda_calls(const cuda_api &inner);
// Of the calling thread so far, through any such table.
[[nodiscard]] call_totals counted_cuda_calls() noexcept;

}  // namespace ebb::link
