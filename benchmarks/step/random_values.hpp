// Random numbers by index, so that any device fills an array with the same ones, in any order.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define EBB_STEP_EVERYWHERE __host__ __device__
#else
#define EBB_STEP_EVERYWHERE
#endif

namespace step {

// splitmix64's output function of the index-th state.
EBB_STEP_EVERYWHERE inline uint64_t random_bits(uint64_t seed, uint64_t index) {
    uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
}

// In [0, 1), of 24 bits: exact in a float.
EBB_STEP_EVERYWHERE inline double random_unit(uint64_t seed, uint64_t index) {
    return static_cast<double>(random_bits(seed, index) >> 40U) * 0x1p-24;
}

}  // namespace step
