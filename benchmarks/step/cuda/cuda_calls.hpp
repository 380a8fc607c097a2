// Calls to the CUDA libraries as exceptions, like those to Ebb.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "ebb_call.hpp"

namespace step {

inline void check(cudaError_t error, const char *call) {
    if (error == cudaSuccess) {
        return;
    }
    cudaGetLastError();  // that it is known; a sticky error stays all the same
    throw train::call_failed(error == cudaErrorMemoryAllocation ? EBB_OUT_OF_DEVICE_MEMORY : EBB_DEVICE_ERROR, call,
                             std::string(cudaGetErrorName(error)) + ", " + cudaGetErrorString(error));
}

inline void check(cublasStatus_t status, const char *call) {
    if (status != CUBLAS_STATUS_SUCCESS) {
        throw train::call_failed(EBB_DEVICE_ERROR, call, cublasLtGetStatusName(status));
    }
}

}  // namespace step
