// The kernels of cuda_launches.cu; see link_cuda.hpp for what they do.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ebb::link {

cudaError_t launch_fill(cudaStream_t stream, void *data, size_t size_bytes, uint64_t seed);
cudaError_t launch_compare(cudaStream_t stream, const void *data, size_t size_bytes, uint64_t seed, uint32_t *wrong);
cudaError_t launch_gate(cudaStream_t stream, const uint32_t *open, uint32_t *gave_up);
cudaError_t launch_load(cudaStream_t stream, const uint32_t *ends);
// Kernels are loaded when first launched, which would have to wait for the gate: loads all of them.
cudaError_t load_kernels();

}  // namespace ebb::link
