#include "device/cuda/kernels.hpp"

#include "device/checksum_parts.hpp"
#include "device/cuda/cuda_api.hpp"

namespace ebb {
namespace {

static_assert(checksum::k_most_blocks * sizeof(uint64_t) <= k_checksum_scratch_bytes,
              "the scratch memory holds one sum of each block");

__device__ uint64_t word_of_bytes(const unsigned char *data, uint64_t size_bytes) {
    uint64_t word = 0;
    for (uint64_t i = 0; i < size_bytes; ++i) {
        word |= static_cast<uint64_t>(data[i]) << (8 * i);
    }
    return word;
}

// The sum of all threads' values, in thread 0. Sums of 64-bit integers do not depend on their order.
__device__ uint64_t sum_of_block(uint64_t value) {
    __shared__ uint64_t values[checksum::k_lanes];
    values[threadIdx.x] = value;
    for (uint32_t half = checksum::k_lanes / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            values[threadIdx.x] += values[threadIdx.x + half];
        }
    }
    return threadIdx.x == 0 ? values[0] : 0;  // the others are not behind the last addition
}

__global__ void sum_blocks(checksum::split parts, const unsigned char *data, uint64_t *sums) {
    uint64_t sum = 0;
    if (reinterpret_cast<uintptr_t>(data) % sizeof(uint64_t) == 0) {
        const auto *words = reinterpret_cast<const uint64_t *>(data);
        sum = checksum::lane_sum(parts, blockIdx.x, threadIdx.x, [words](uint64_t i) { return words[i]; });
    } else {
        sum = checksum::lane_sum(parts, blockIdx.x, threadIdx.x, [data](uint64_t i) {
            return word_of_bytes(data + i * checksum::k_word_bytes, checksum::k_word_bytes);
        });
    }
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = checksum::placed_sum(parts, blockIdx.x, sum);
    }
}

__global__ void finish_checksum(checksum::split parts, const unsigned char *data, const uint64_t *sums,
                                uint64_t *accumulator) {
    uint64_t sum = 0;
    for (uint32_t block = threadIdx.x; block < parts.blocks; block += checksum::k_lanes) {
        sum += sums[block];
    }
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) {
        const uint64_t tail = word_of_bytes(data + parts.words * checksum::k_word_bytes, parts.tail_bytes);
        *accumulator = checksum::finish(parts, *accumulator, sum, tail);
    }
}

}  // namespace

cudaError_t launch_checksum(cudaStream_t stream, const void *data, uint64_t size_bytes, uint64_t *accumulator,
                            void *scratch) {
    checksum::split parts = checksum::split_bytes(size_bytes);
    auto *bytes = static_cast<const unsigned char *>(data);
    auto *sums = static_cast<uint64_t *>(scratch);
    // Not by <<<>>>, which leaves its error where the caller's may stand.
    if (parts.blocks > 0) {
        void *arguments[] = {&parts, &bytes, &sums};
        const cudaError_t launched = cudaLaunchKernel(reinterpret_cast<const void *>(&sum_blocks), dim3(parts.blocks),
                                                      dim3(checksum::k_lanes), arguments, 0, stream);
        if (launched != cudaSuccess) {
            return launched;
        }
    }
    void *arguments[] = {&parts, &bytes, &sums, &accumulator};
    return cudaLaunchKernel(reinterpret_cast<const void *>(&finish_checksum), dim3(1), dim3(checksum::k_lanes),
                            arguments, 0, stream);
}

}  // namespace ebb
