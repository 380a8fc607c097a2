// Argument checks that devices share.
#pragma once

#include <cstdint>

#include "base/status.hpp"

namespace ebb {

[[nodiscard]] status check_copy_arguments(const void *destination, const void *source, uint64_t size_bytes);
[[nodiscard]] status check_checksum_arguments(const void *data, uint64_t size_bytes, const uint64_t *accumulator);

}  // namespace ebb
