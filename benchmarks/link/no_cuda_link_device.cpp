// Where there is no CUDA toolkit.
#include "link/link_devices.hpp"

namespace ebb::link {

bool has_cuda() noexcept {
    return false;
}

bool has_nccl() noexcept {
    return false;
}

result<link_device> open_cuda(int32_t /*ordinal*/) {
    return status{code::unsupported, "this build has no CUDA device: no CUDA toolkit was found when it was configured"};
}

}  // namespace ebb::link
