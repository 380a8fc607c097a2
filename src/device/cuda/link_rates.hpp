// How fast the link between a GPU and the host is: measured, or by what kind of machine it is; and how large a chunk of
// a copy should be at that rate.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.hpp"
#include "device/cuda/cuda_api.hpp"
#include "device/device.hpp"

namespace ebb {

// Half a millisecond of copying, between 4 and 64 MiB: long enough that a call's cost is nothing beside it, short
// enough that a small copy behind it does not wait.
[[nodiscard]] uint64_t chunk_bytes_at(uint64_t bytes_per_second) noexcept;

// The slower direction's rate where nobody measured. coherent: the GPU reads through the host's page tables.
[[nodiscard]] uint64_t usual_bytes_per_second(bool coherent, int compute_capability_major) noexcept;

struct measuring_options {
    std::string system_root = "/";
    uint32_t prefault_threads = 0;
    uint64_t buffer_bytes = 128ULL << 20U;  // on either side, per direction
};

// Copies from the device, to it, and both at once, on all GPUs of the process at the same time, since they may share
// the host's memory: on this one and on each whose context is alive. Measured once per process and device; later calls
// give the same. Blocks for some tens of milliseconds.
result<link_rates> measured_link_rates(const cuda_api &api, int32_t ordinal, const measuring_options &options);

// For tests: the next call measures again.
void forget_measured_link_rates();

}  // namespace ebb
