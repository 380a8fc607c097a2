// Quantities as people write them: "64MiB", "1.5G", "12GB/s".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ebb {

// Bytes: a number with K, M, G, T or KiB, MiB, GiB, TiB (all powers of two) or B. KB and MB are refused: half of their
// readers mean 1000. A fraction (nine digits of it) is rounded down to whole bytes. Nothing for malformed text or more
// than 64 bits.
[[nodiscard]] std::optional<uint64_t> parse_bytes(std::string_view text) noexcept;

// Bytes per second: a number with B/s, KB/s, MB/s, GB/s, TB/s (powers of ten, as links are sold) or KiB/s, MiB/s,
// GiB/s, TiB/s (powers of two), or without a unit.
[[nodiscard]] std::optional<uint64_t> parse_rate(std::string_view text) noexcept;

// A whole number without a sign or unit.
[[nodiscard]] std::optional<uint64_t> parse_count(std::string_view text) noexcept;

// Exact text that parse_bytes and parse_rate read back: the largest unit that divides the value.
[[nodiscard]] std::string format_bytes(uint64_t value);
[[nodiscard]] std::string format_rate(uint64_t value);

}  // namespace ebb
