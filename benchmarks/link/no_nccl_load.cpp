// Where there is no NCCL.
#include "link/link_devices.hpp"
#include "link/nccl_load.hpp"

namespace ebb::link {

bool has_nccl() noexcept {
    return false;
}

begin_collectives nccl_collectives() {
    return {};
}

}  // namespace ebb::link
