// A whole file as text, for small files that a user names.
#pragma once

#include <string>

#include "base/status.hpp"

namespace ebb {

[[nodiscard]] result<std::string> read_text_file(const std::string &path);

}  // namespace ebb
