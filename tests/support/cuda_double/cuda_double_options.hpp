// What machine the double makes believe it is.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>
#include <map>

namespace ebb::test {

struct cuda_double_options {
    int devices = 1;
    int driver_version = CUDART_VERSION;    // 0: there is no driver
    uint64_t capacity_bytes = 1ULL << 30U;  // of each device
    uint64_t pinned_limit_bytes = std::numeric_limits<uint64_t>::max();
    uint64_t d2h_bytes_per_second = 0;  // 0: as fast as memory is; all devices share the link
    uint64_t h2d_bytes_per_second = 0;
    bool has_batches = true;
    uint64_t seed = 1;                           // of the orders that CUDA leaves open
    std::map<cudaDeviceAttr, int> attributes{};  // where they differ from a usual GPU's
};

}  // namespace ebb::test
