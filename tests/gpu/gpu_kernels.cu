#include "gpu_kernels.hpp"

namespace ebb::test {

namespace {

constexpr unsigned k_threads = 256;
constexpr unsigned long long k_wait_limit_ns = 20'000'000'000ULL;

__device__ unsigned long long now_ns() {
    unsigned long long now = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__device__ uint64_t first_index() {
    return uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

__device__ uint64_t index_stride() {
    return uint64_t{gridDim.x} * blockDim.x;
}

// As filled_word of cuda_user.hpp.
__device__ uint64_t word_of(uint64_t seed, uint64_t word) {
    return (seed + 1) * 0x9E3779B97F4A7C15ULL + word * 0xBF58476D1CE4E5B9ULL;
}

__global__ void fill(uint64_t *words, uint64_t count, uint64_t seed) {
    for (uint64_t i = first_index(); i < count; i += index_stride()) {
        words[i] = word_of(seed, i);
    }
}

__global__ void add(uint64_t *words, uint64_t count, uint64_t value) {
    for (uint64_t i = first_index(); i < count; i += index_stride()) {
        words[i] += value;
    }
}

__global__ void exclusive_or(uint64_t *words, uint64_t count, uint64_t value) {
    for (uint64_t i = first_index(); i < count; i += index_stride()) {
        words[i] ^= value;
    }
}

__global__ void compare(const uint64_t *words, uint64_t count, uint64_t seed, uint32_t *wrong) {
    uint32_t mine = 0;
    for (uint64_t i = first_index(); i < count; i += index_stride()) {
        mine += words[i] != word_of(seed, i) ? 1 : 0;
    }
    if (mine != 0) {
        atomicAdd(wrong, mine);
    }
}

// For a while: a test that forgets the flag fails, and does not hang the GPU.
__global__ void wait(const uint32_t *flag) {
    const unsigned long long begin = now_ns();
    while (*reinterpret_cast<const volatile uint32_t *>(flag) == 0 && now_ns() - begin < k_wait_limit_ns) {
    }
}

__global__ void write_nowhere(uint64_t *nowhere) {
    *nowhere = 1;
}

// One thread per element of the result, which takes its sum in order.
__global__ void linear(const float *in, const float *weights, float *out, int rows, int width) {
    const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const int row = static_cast<int>(blockIdx.y);
    if (column < width && row < rows) {
        float sum = 0;
        for (int k = 0; k < width; ++k) {
            sum += in[row * width + k] * weights[k * width + column];
        }
        out[row * width + column] = sum;
    }
}

__global__ void activate(const float *in, float *out, int count) {
    for (uint64_t i = first_index(); i < static_cast<uint64_t>(count); i += index_stride()) {
        out[i] = in[i] / (1.0F + fabsf(in[i]));
    }
}

__global__ void activate_backward(const float *in, const float *upstream, float *out, int count) {
    for (uint64_t i = first_index(); i < static_cast<uint64_t>(count); i += index_stride()) {
        const float slope = 1.0F / (1.0F + fabsf(in[i]));
        out[i] = upstream[i] * slope * slope;
    }
}

__global__ void weight_gradient(const float *in, const float *upstream, float *gradient, int rows, int width) {
    const int j = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const int i = static_cast<int>(blockIdx.y);
    if (i < width && j < width) {
        float sum = 0;
        for (int row = 0; row < rows; ++row) {
            sum += in[row * width + i] * upstream[row * width + j];
        }
        gradient[i * width + j] += sum;
    }
}

__global__ void input_gradient(const float *upstream, const float *weights, float *out, int rows, int width) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const int row = static_cast<int>(blockIdx.y);
    if (i < width && row < rows) {
        float sum = 0;
        for (int j = 0; j < width; ++j) {
            sum += upstream[row * width + j] * weights[i * width + j];
        }
        out[row * width + i] = sum;
    }
}

__global__ void descend(float *weights, const float *gradient, int count, float rate) {
    for (uint64_t i = first_index(); i < static_cast<uint64_t>(count); i += index_stride()) {
        weights[i] -= rate * gradient[i];
    }
}

__global__ void fill_random(float *out, int count, uint64_t seed) {
    for (uint64_t i = first_index(); i < static_cast<uint64_t>(count); i += index_stride()) {
        uint64_t z = (seed + i * 0x9e3779b97f4a7c15U) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 31U)) * 0x94d049bb133111ebU;
        out[i] = static_cast<float>(static_cast<double>(z >> 40U) * 0x1p-23 - 1.0);
    }
}

unsigned blocks_for(uint64_t count) {
    constexpr uint64_t k_most_blocks = 2048;
    const uint64_t wanted = (count + k_threads - 1) / k_threads;
    return static_cast<unsigned>(wanted < 1 ? 1 : wanted < k_most_blocks ? wanted : k_most_blocks);
}

dim3 blocks_for_rows(int rows, int width) {
    return {(static_cast<unsigned>(width) + k_threads - 1) / k_threads, static_cast<unsigned>(rows), 1};
}

}  // namespace

cudaError_t launch_fill(cudaStream_t stream, void *data, size_t size_bytes, uint64_t seed) {
    const uint64_t count = size_bytes / sizeof(uint64_t);
    fill<<<blocks_for(count), k_threads, 0, stream>>>(static_cast<uint64_t *>(data), count, seed);
    return cudaGetLastError();
}

cudaError_t launch_add(cudaStream_t stream, void *data, size_t size_bytes, uint64_t value) {
    const uint64_t count = size_bytes / sizeof(uint64_t);
    add<<<blocks_for(count), k_threads, 0, stream>>>(static_cast<uint64_t *>(data), count, value);
    return cudaGetLastError();
}

cudaError_t launch_xor(cudaStream_t stream, void *data, size_t size_bytes, uint64_t value) {
    const uint64_t count = size_bytes / sizeof(uint64_t);
    exclusive_or<<<blocks_for(count), k_threads, 0, stream>>>(static_cast<uint64_t *>(data), count, value);
    return cudaGetLastError();
}

cudaError_t launch_compare(cudaStream_t stream, const void *data, size_t size_bytes, uint64_t seed, uint32_t *wrong) {
    const uint64_t count = size_bytes / sizeof(uint64_t);
    compare<<<blocks_for(count), k_threads, 0, stream>>>(static_cast<const uint64_t *>(data), count, seed, wrong);
    return cudaGetLastError();
}

cudaError_t launch_wait(cudaStream_t stream, const uint32_t *flag) {
    wait<<<1, 1, 0, stream>>>(flag);
    return cudaGetLastError();
}

cudaError_t launch_illegal_address(cudaStream_t stream) {
    write_nowhere<<<1, 1, 0, stream>>>(reinterpret_cast<uint64_t *>(uint64_t{64}));
    return cudaGetLastError();
}

cudaError_t launch_linear(cudaStream_t stream, const float *in, const float *weights, float *out, int rows, int width) {
    linear<<<blocks_for_rows(rows, width), k_threads, 0, stream>>>(in, weights, out, rows, width);
    return cudaGetLastError();
}

cudaError_t launch_activate(cudaStream_t stream, const float *in, float *out, int count) {
    activate<<<blocks_for(static_cast<uint64_t>(count)), k_threads, 0, stream>>>(in, out, count);
    return cudaGetLastError();
}

cudaError_t launch_activate_backward(cudaStream_t stream, const float *in, const float *upstream, float *out,
                                     int count) {
    activate_backward<<<blocks_for(static_cast<uint64_t>(count)), k_threads, 0, stream>>>(in, upstream, out, count);
    return cudaGetLastError();
}

cudaError_t launch_weight_gradient(cudaStream_t stream, const float *in, const float *upstream, float *gradient,
                                   int rows, int width) {
    weight_gradient<<<blocks_for_rows(width, width), k_threads, 0, stream>>>(in, upstream, gradient, rows, width);
    return cudaGetLastError();
}

cudaError_t launch_input_gradient(cudaStream_t stream, const float *upstream, const float *weights, float *out,
                                  int rows, int width) {
    input_gradient<<<blocks_for_rows(rows, width), k_threads, 0, stream>>>(upstream, weights, out, rows, width);
    return cudaGetLastError();
}

cudaError_t launch_descend(cudaStream_t stream, float *weights, const float *gradient, int count, float rate) {
    descend<<<blocks_for(static_cast<uint64_t>(count)), k_threads, 0, stream>>>(weights, gradient, count, rate);
    return cudaGetLastError();
}

cudaError_t launch_fill_random(cudaStream_t stream, float *out, int count, uint64_t seed) {
    fill_random<<<blocks_for(static_cast<uint64_t>(count)), k_threads, 0, stream>>>(out, count, seed);
    return cudaGetLastError();
}

cudaError_t load_all_kernels() {
    cudaFuncAttributes unused{};
    const void *const all[] = {
        reinterpret_cast<const void *>(&fill),          reinterpret_cast<const void *>(&add),
        reinterpret_cast<const void *>(&exclusive_or),  reinterpret_cast<const void *>(&compare),
        reinterpret_cast<const void *>(&wait),          reinterpret_cast<const void *>(&write_nowhere),
        reinterpret_cast<const void *>(&linear),        reinterpret_cast<const void *>(&activate),
        reinterpret_cast<const void *>(&weight_gradient), reinterpret_cast<const void *>(&activate_backward),
        reinterpret_cast<const void *>(&input_gradient), reinterpret_cast<const void *>(&descend),
        reinterpret_cast<const void *>(&fill_random)};
    for (const void *kernel : all) {
        const cudaError_t error = cudaFuncGetAttributes(&unused, kernel);
        if (error != cudaSuccess) {
            return error;
        }
    }
    return cudaSuccess;
}

}  // namespace ebb::test
