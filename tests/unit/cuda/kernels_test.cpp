// The kernels' own source, compiled for the CPU: a block's threads are threads, with a barrier. What a GPU makes of it
// is seen on a GPU alone; this is that the code adds up.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "device/cuda/cuda_api.hpp"
#include "device/device.hpp"

namespace {

thread_local dim3 threadIdx;
thread_local dim3 blockIdx;
thread_local std::barrier<> *block_barrier = nullptr;

void __syncthreads() {  // NOLINT(bugprone-reserved-identifier)
    block_barrier->arrive_and_wait();
}
cudaError_t launch_on_cpu(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t, cudaStream_t);

}  // namespace

#undef __shared__
#define __shared__ static
#define cudaLaunchKernel launch_on_cpu
#include "device/cuda/kernels.cu"  // NOLINT(bugprone-suspicious-include)

namespace {

template <class T>
T argument(void **arguments, int which) {
    return *static_cast<T *>(arguments[which]);
}

void run_thread(const void *kernel, void **arguments) {
    const auto parts = argument<ebb::checksum::split>(arguments, 0);
    const auto *data = argument<const unsigned char *>(arguments, 1);
    auto *sums = argument<uint64_t *>(arguments, 2);
    if (kernel == reinterpret_cast<const void *>(&ebb::sum_blocks)) {
        ebb::sum_blocks(parts, data, sums);
    } else {
        ebb::finish_checksum(parts, data, sums, argument<uint64_t *>(arguments, 3));
    }
}

cudaError_t launch_on_cpu(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t, cudaStream_t) {
    for (unsigned b = 0; b < grid.x; ++b) {
        std::barrier<> barrier(static_cast<std::ptrdiff_t>(block.x));
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < block.x; ++t) {
            threads.emplace_back([&, b, t] {
                threadIdx = dim3(t);
                blockIdx = dim3(b);
                block_barrier = &barrier;
                run_thread(kernel, arguments);
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
    }
    return cudaSuccess;
}

uint64_t on_cpu(uint64_t accumulator, const unsigned char *data, uint64_t size_bytes) {
    std::vector<uint64_t> scratch(ebb::k_checksum_scratch_bytes / sizeof(uint64_t), 0x5555555555555555);
    EXPECT_EQ(ebb::launch_checksum(nullptr, data, size_bytes, &accumulator, scratch.data()), cudaSuccess);
    return accumulator;
}

TEST(kernels, the_checksum_adds_up_at_every_alignment_and_tail) {
    constexpr uint64_t k_block_bytes = ebb::checksum::k_rows_worth_a_block * ebb::checksum::k_lanes * 8;
    std::mt19937_64 random(1);
    std::vector<uint64_t> memory(2 * k_block_bytes / 8 + 100);
    for (uint64_t &word : memory) {
        word = random();
    }
    const auto *bytes = reinterpret_cast<const unsigned char *>(memory.data());
    for (const uint64_t size_bytes :
         {uint64_t{1}, uint64_t{7}, uint64_t{8}, uint64_t{2051}, k_block_bytes + 12, 2 * k_block_bytes}) {
        for (const uint64_t shift : {uint64_t{0}, uint64_t{3}, uint64_t{8}}) {
            EXPECT_EQ(on_cpu(99, bytes + shift, size_bytes), ebb::checksum_bytes(99, bytes + shift, size_bytes))
                << size_bytes << " bytes shifted by " << shift;
        }
    }
}

}  // namespace
