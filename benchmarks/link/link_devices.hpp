// The devices that the benchmark can run on.
#pragma once

#include <cstdint>

#include "link/link_rig.hpp"

namespace ebb::link {

// The host device, with that much device memory.
result<link_device> open_host(uint64_t device_bytes);

// Whether this build has a CUDA device; whether NCCL can be the load.
[[nodiscard]] bool has_cuda() noexcept;
[[nodiscard]] bool has_nccl() noexcept;
result<link_device> open_cuda(int32_t ordinal);

}  // namespace ebb::link
