#pragma once

#include "cuda_user.hpp"

namespace ebb::test {

[[nodiscard]] const cuda_user &real_cuda_user();

}  // namespace ebb::test
