#include <stdexcept>

#include "gpu.hpp"

namespace step {
namespace {

[[noreturn]] void refuse() {
    throw std::runtime_error(
        "--device cuda: this build has no GPU part, since no CUDA toolkit with cuBLASLt was found when it was "
        "configured; "
        "use --device host");
}

}  // namespace

std::unique_ptr<gpu_group> make_gpu_group(int64_t /*count*/) {
    refuse();
}

std::unique_ptr<step_device> make_gpu_device(gpu_group & /*group*/, int64_t /*rank*/, const gpu_options & /*options*/) {
    refuse();
}

}  // namespace step
