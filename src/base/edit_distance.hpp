// Levenshtein distance, for "did you mean".
#pragma once

#include <cstddef>
#include <string_view>

namespace ebb {

[[nodiscard]] size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace ebb
