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
    return (seed + 1) * 0x9E3779B97F4A7C15ULL + index * 0xBF58476D1CE4E5B9ULL;
}

}  // namespace ebb::link
