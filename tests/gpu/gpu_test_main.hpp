// What a program of GPU tests does besides running them.
#pragma once

#include <cuda_runtime_api.h>

namespace ebb::test {

// Before the tests.
cudaError_t prepare_gpu();

// A test may call its own program again, for what ends a process: with this argument and a name, it does that instead
// of running tests. The exit status says how it went.
constexpr const char *k_child_argument = "--as-child";
int run_as_child(const char *what);

}  // namespace ebb::test
