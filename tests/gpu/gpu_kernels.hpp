// The kernels of gpu_kernels.cu: those of cuda_user and of the training chain, as they run on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ebb::test {

cudaError_t launch_fill(cudaStream_t stream, void *data, size_t size_bytes, uint64_t seed);
cudaError_t launch_add(cudaStream_t stream, void *data, size_t size_bytes, uint64_t value);
cudaError_t launch_xor(cudaStream_t stream, void *data, size_t size_bytes, uint64_t value);
cudaError_t launch_compare(cudaStream_t stream, const void *data, size_t size_bytes, uint64_t seed, uint32_t *wrong);
cudaError_t launch_wait(cudaStream_t stream, const uint32_t *flag);
// Writes where nothing is: the context is gone after it.
cudaError_t launch_illegal_address(cudaStream_t stream);

cudaError_t launch_linear(cudaStream_t stream, const float *in, const float *weights, float *out, int rows, int width);
cudaError_t launch_activate(cudaStream_t stream, const float *in, float *out, int count);
cudaError_t launch_activate_backward(cudaStream_t stream, const float *in, const float *upstream, float *out,
                                     int count);
cudaError_t launch_weight_gradient(cudaStream_t stream, const float *in, const float *upstream, float *gradient,
                                   int rows, int width);
cudaError_t launch_input_gradient(cudaStream_t stream, const float *upstream, const float *weights, float *out,
                                  int rows, int width);
cudaError_t launch_descend(cudaStream_t stream, float *weights, const float *gradient, int count, float rate);
cudaError_t launch_fill_random(cudaStream_t stream, float *out, int count, uint64_t seed);

// Kernels are otherwise loaded when first launched, which a capture or a stream that stands may forbid.
cudaError_t load_all_kernels();

}  // namespace ebb::test
