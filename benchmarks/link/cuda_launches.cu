#include "link/cuda_launches.hpp"

#include "link/pattern.hpp"

namespace ebb::link {

namespace {

constexpr unsigned k_threads = 256;
constexpr unsigned long long k_gate_limit_ns = 10'000'000'000ULL;
constexpr unsigned long long k_load_limit_ns = 60'000'000'000ULL;

__device__ unsigned long long now_ns() {
    unsigned long long now = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__device__ bool is_set(const uint32_t *flag) {
    return *reinterpret_cast<const volatile uint32_t *>(flag) != 0;
}

__global__ void fill(uint64_t *words, uint64_t count, uint64_t seed) {
    const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
    for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
        words[i] = pattern_word(seed, i);
    }
}

__global__ void compare(const uint64_t *words, uint64_t count, uint64_t seed, uint32_t *wrong) {
    const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
    uint32_t mine = 0;
    for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
        mine += words[i] != pattern_word(seed, i) ? 1 : 0;
    }
    if (mine != 0) {
        atomicAdd(wrong, mine);
    }
}

__global__ void gate(const uint32_t *open, uint32_t *gave_up) {
    const unsigned long long begin = now_ns();
    while (!is_set(open)) {
        if (now_ns() - begin > k_gate_limit_ns) {
            *gave_up = 1;
            return;
        }
    }
}

__global__ void load(const uint32_t *ends, float *never_written) {
    constexpr int k_products_per_look = 4096;
    __shared__ bool over;
    const unsigned long long begin = now_ns();
    float value = static_cast<float>(threadIdx.x);
    do {
        for (int i = 0; i < k_products_per_look; ++i) {
            value = fmaf(value, 0.99F, 1.0F);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            over = is_set(ends) || now_ns() - begin > k_load_limit_ns;
        }
        __syncthreads();
    } while (!over);
    if (value < 0) {  // never, but the compiler cannot know
        *never_written = value;
    }
}

unsigned blocks_for(uint64_t words) {
    constexpr uint64_t k_most_blocks = 4096;
    const uint64_t wanted = (words + k_threads - 1) / k_threads;
    return static_cast<unsigned>(wanted < k_most_blocks ? wanted : k_most_blocks);
}

}  // namespace

cudaError_t launch_fill(cudaStream_t stream, void *data, size_t size_bytes, uint64_t seed) {
    const uint64_t count = size_bytes / sizeof(uint64_t);
    fill<<<blocks_for(count), k_threads, 0, stream>>>(static_cast<uint64_t *>(data), count, seed);
    return cudaGetLastError();
}

cudaError_t launch_compare(cudaStream_t stream, const void *data, size_t size_bytes, uint64_t seed, uint32_t *wrong) {
    const uint64_t count = size_bytes / sizeof(uint64_t);
    compare<<<blocks_for(count), k_threads, 0, stream>>>(static_cast<const uint64_t *>(data), count, seed, wrong);
    return cudaGetLastError();
}

cudaError_t launch_gate(cudaStream_t stream, const uint32_t *open, uint32_t *gave_up) {
    gate<<<1, 1, 0, stream>>>(open, gave_up);
    return cudaGetLastError();
}

cudaError_t launch_load(cudaStream_t stream, const uint32_t *ends) {
    int ordinal = 0;
    int multiprocessors = 0;
    cudaError_t error = cudaGetDevice(&ordinal);
    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, ordinal);
    }
    if (error != cudaSuccess) {
        return error;
    }
    load<<<static_cast<unsigned>(multiprocessors), k_threads, 0, stream>>>(ends, nullptr);
    return cudaGetLastError();
}

cudaError_t load_kernels() {
    cudaFuncAttributes unused{};
    for (const void *kernel : {reinterpret_cast<const void *>(&fill), reinterpret_cast<const void *>(&compare),
                               reinterpret_cast<const void *>(&gate), reinterpret_cast<const void *>(&load)}) {
        const cudaError_t error = cudaFuncGetAttributes(&unused, kernel);
        if (error != cudaSuccess) {
            return error;
        }
    }
    return cudaSuccess;
}

}  // namespace ebb::link
