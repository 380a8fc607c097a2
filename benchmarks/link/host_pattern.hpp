// The pattern in memory that the processor reaches, on as many threads as pay.
#pragma once

#include <cstdint>

namespace ebb::link {

void fill_pattern(void *data, uint64_t size_bytes, uint64_t seed);
// Words that are not the pattern's.
[[nodiscard]] uint64_t count_wrong_words(const void *data, uint64_t size_bytes, uint64_t seed);

}  // namespace ebb::link
