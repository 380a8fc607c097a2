// The bytes that are copied and looked at again: 64-bit words that follow from a seed and their place, so that a copy
// that is missing, too short or from another place shows.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define EBB_LINK_ANYWHERE __host__ __device__
#else
#define EBB_LINK_ANYWHERE
#endif

namespace ebb::link {

EBB_LINK_ANYWHERE inline uint64_t pattern_word(uint64_t seed, uint64_t index) {
    uint64_t z = seed * 0xc2b2ae3d27d4eb4fU + index * 0x9e3779b97f4a7c15U;
    z ^= z >> 32U;
    return z * 0xd6e8feb86659fd93U;
}

}  // namespace ebb::link
