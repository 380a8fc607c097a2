// Our own kernels, compiled by nvcc (kernels.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ebb {

// As cuda_api::launch_checksum. With the stream's device current.
cudaError_t launch_checksum(cudaStream_t stream, const void *data, uint64_t size_bytes, uint64_t *accumulator,
                            void *scratch);

}  // namespace ebb
