// Runs kernels on the CPU, for tests on machines without a GPU: cuda_kernels.cu is compiled as C++ with this header in
// front. The threads of a block are fibers that take turns; __syncthreads and shuffles are where they wait for each
// other. A wait that not all of them reach ends the program, as it would hang or worse on a GPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>

#undef __shared__
#define __shared__ static  // one block runs at a time

namespace cuda_on_cpu {

struct position {
    unsigned x = 0, y = 0, z = 0;
};

// Of the fiber that runs.
extern position g_thread, g_block, g_block_dimensions;

enum class meeting { of_block, of_warp };
// The fiber waits until all others of its block or warp do.
void meet(meeting where);
// Where a thread of the running block leaves a value for others of its warp; two, used in turns.
void *exchange_place(unsigned thread, unsigned turn);
unsigned &exchange_turn();

void run(dim3 grid, unsigned threads, const std::function<void()> &thread);

// launch_of(kernel, grid, threads, stream)(arguments...)
template <class... arguments>
auto launch_of(void (*kernel)(arguments...), dim3 grid, unsigned threads, cudaStream_t /*stream*/) {
    return [=](arguments... values) { run(grid, threads, [&] { kernel(values...); }); };
}

template <class number>
number shuffle_xor(number value, int distance) {
    const unsigned turn = exchange_turn()++ % 2;
    std::memcpy(exchange_place(g_thread.x, turn), &value, sizeof(value));
    meet(meeting::of_warp);
    std::memcpy(&value, exchange_place(g_thread.x ^ static_cast<unsigned>(distance), turn), sizeof(value));
    return value;
}

}  // namespace cuda_on_cpu

#define threadIdx ::cuda_on_cpu::g_thread
#define blockIdx ::cuda_on_cpu::g_block
#define blockDim ::cuda_on_cpu::g_block_dimensions
#define __syncthreads() ::cuda_on_cpu::meet(::cuda_on_cpu::meeting::of_block)
#define __shfl_xor_sync(mask, value, distance) ::cuda_on_cpu::shuffle_xor(value, distance)

inline float rsqrtf(float x) {
    return 1.0F / std::sqrt(x);
}
