// The devices that the benchmark can run on.
#pragma once

#include <cstdint>
#include <vector>

#include "link/link_rig.hpp"

namespace ebb::link {

// The host device, with memory for these cells.
result<link_device> open_host(const std::vector<link_cell> &cells);

// Whether this build has a CUDA device; whether NCCL can be the load.
[[nodiscard]] bool has_cuda() noexcept;
[[nodiscard]] bool has_nccl() noexcept;
result<link_device> open_cuda(int32_t ordinal);

}  // namespace ebb::link
