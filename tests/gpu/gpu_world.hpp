// What the tests of this folder stand on: CUDA as a program uses it, kernels of a small training step, and a runtime of
// Ebb. On a GPU that is CUDA itself with libebb and libebb_cuda, as users have them. The same tests also run on the
// double of CUDA, where their own mistakes show without a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "cuda_user.hpp"
#include "ebb/ebb.h"

namespace ebb::test {

// Matrices lie row by row. Each sum is taken in one order, so that the same input gives the same bits.
struct chain_kernels {
    // out = in * weights; in and out: rows x width
    cudaError_t (*linear)(cudaStream_t stream, const float *in, const float *weights, float *out, int rows, int width);
    // out = in / (1 + |in|)
    cudaError_t (*activate)(cudaStream_t stream, const float *in, float *out, int count);
    // out = upstream * activate'(in)
    cudaError_t (*activate_backward)(cudaStream_t stream, const float *in, const float *upstream, float *out,
                                     int count);
    // gradient += in^T * upstream
    cudaError_t (*weight_gradient)(cudaStream_t stream, const float *in, const float *upstream, float *gradient,
                                   int rows, int width);
    // out = upstream * weights^T
    cudaError_t (*input_gradient)(cudaStream_t stream, const float *upstream, const float *weights, float *out,
                                  int rows, int width);
    // weights -= rate * gradient
    cudaError_t (*descend)(cudaStream_t stream, float *weights, const float *gradient, int count, float rate);
    // In [-1, 1), from the seed.
    cudaError_t (*fill_random)(cudaStream_t stream, float *out, int count, uint64_t seed);
};

// Of a step: small on the double, whose kernels are the processor's.
struct chain_shape {
    int layers = 6;
    int rows = 0;
    int width = 0;
};

// The options that tests set; 0 and null are Ebb's defaults, but for the floor, which is off.
struct runtime_wishes {
    const char *policy = nullptr;
    uint64_t device_budget_bytes = 0;
    uint64_t staging_bytes = 0;
    uint64_t max_activation_bytes = 0;
    bool gives_up_at_once = false;  // EBB_SOURCES_NONE
    bool verify = false;
};

class gpu_world {
public:
    gpu_world() = default;
    virtual ~gpu_world() = default;
    gpu_world(const gpu_world &) = delete;
    gpu_world &operator=(const gpu_world &) = delete;

    [[nodiscard]] virtual const cuda_user &cuda() const = 0;
    [[nodiscard]] virtual const chain_kernels &kernels() const = 0;
    [[nodiscard]] virtual chain_shape shape() const = 0;
    // On the first GPU.
    virtual ebb_status create_runtime(const runtime_wishes &wishes, ebb_runtime **runtime) = 0;
};

// The program's.
[[nodiscard]] std::unique_ptr<gpu_world> make_gpu_world();

}  // namespace ebb::test
