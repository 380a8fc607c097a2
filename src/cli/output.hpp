// How results leave a command: whole, and numbers the same way everywhere.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.hpp"
#include "cli/terminal.hpp"

namespace ebb::cli {

void print_text(terminal &io, const std::string &text);
void print_json(terminal &io, const nlohmann::ordered_json &object);
// The file is replaced when the text is complete.
[[nodiscard]] status write_file(const std::string &path, const std::string &text);

// For tables: the unit is in the column's head.
[[nodiscard]] std::string in_gib(uint64_t size_bytes);
// At least that much, to be given again as an argument: whole MiB.
[[nodiscard]] std::string as_argument(uint64_t size_bytes);
[[nodiscard]] std::string in_ms(double time_ns);
[[nodiscard]] double to_gib(uint64_t size_bytes) noexcept;
[[nodiscard]] double to_ms(double time_ns) noexcept;

}  // namespace ebb::cli
