#include "base/log.hpp"

#include <algorithm>
#include <cstdio>
#include <string>

namespace ebb {

std::string_view log_level_name(log_level level) noexcept {
    switch (level) {
        case log_level::error:
            return "error";
        case log_level::warning:
            return "warning";
        case log_level::info:
            return "info";
        case log_level::debug:
            return "debug";
    }
    return "unknown";
}

void logger::write(log_level level, std::string_view text) const {
    if (!enabled(level)) {
        return;
    }
    std::string line(text);
    std::replace_if(
        line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    if (function_ != nullptr) {
        function_(context_, static_cast<int32_t>(level), line.c_str());
        return;
    }
    const std::string_view name = log_level_name(level);
    std::fprintf(stderr, "ebb: %.*s: %s\n", static_cast<int>(name.size()), name.data(), line.c_str());
}

}  // namespace ebb
