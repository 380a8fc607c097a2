#include "collectives.hpp"

namespace step {

std::unique_ptr<collectives> make_collectives(int64_t /*count*/) {
    return nullptr;
}

}  // namespace step
