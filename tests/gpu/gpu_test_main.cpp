// What needs a GPU fails where there is none, instead of passing or being skipped.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gpu_test_main.hpp"

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    // Asked for its names alone: also where it is built.
    if (testing::GTEST_FLAG(list_tests)) {
        return RUN_ALL_TESTS();
    }
    // Streams that share a queue of the GPU wait for each other; tests have streams stand while others go on.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        std::fprintf(stderr, "These tests need a GPU, and there is none that CUDA can use: %s (%s)\n",
                     error == cudaSuccess ? "no devices" : cudaGetErrorString(error), cudaGetErrorName(error));
        return 1;
    }
    if (argc == 3 && std::strcmp(argv[1], ebb::test::k_child_argument) == 0) {
        return ebb::test::run_as_child(argv[2]);
    }
    if (const cudaError_t loaded = ebb::test::prepare_gpu(); loaded != cudaSuccess) {
        std::fprintf(stderr, "The kernels of these tests cannot be loaded: %s\n", cudaGetErrorString(loaded));
        return 1;
    }
    return RUN_ALL_TESTS();
}
