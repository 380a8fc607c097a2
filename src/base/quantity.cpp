#include "base/quantity.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>

namespace ebb {

namespace {

struct unit {
    std::string_view name;
    uint64_t factor;
};

constexpr uint64_t k_kib = 1024;
constexpr uint64_t k_kb = 1000;

constexpr std::array<unit, 10> k_byte_units{{
    {"", 1},
    {"B", 1},
    {"TiB", k_kib *k_kib *k_kib *k_kib},
    {"GiB", k_kib *k_kib *k_kib},
    {"MiB", k_kib *k_kib},
    {"KiB", k_kib},
    {"T", k_kib *k_kib *k_kib *k_kib},
    {"G", k_kib *k_kib *k_kib},
    {"M", k_kib *k_kib},
    {"K", k_kib},
}};

constexpr std::array<unit, 10> k_rate_units{{
    {"", 1},
    {"B/s", 1},
    {"TB/s", k_kb *k_kb *k_kb *k_kb},
    {"GB/s", k_kb *k_kb *k_kb},
    {"MB/s", k_kb *k_kb},
    {"KB/s", k_kb},
    {"TiB/s", k_kib *k_kib *k_kib *k_kib},
    {"GiB/s", k_kib *k_kib *k_kib},
    {"MiB/s", k_kib *k_kib},
    {"KiB/s", k_kib},
}};

bool is_digit(char c) noexcept {
    return c >= '0' && c <= '9';
}

char lower(char c) noexcept {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool same_word(std::string_view a, std::string_view b) noexcept {
    if (a.size() != b.size()) {
        return false;
    }
    for (size_t i = 0; i < a.size(); ++i) {
        if (lower(a[i]) != lower(b[i])) {
            return false;
        }
    }
    return true;
}

// factor * 0.digits, rounded down. The tenth digit and later ones are not counted: nine keep the product in 64 bits.
uint64_t fraction_of(uint64_t factor, std::string_view digits) noexcept {
    uint64_t numerator = 0;
    uint64_t denominator = 1;
    for (const char c : digits.substr(0, 9)) {
        numerator = numerator * 10 + static_cast<uint64_t>(c - '0');
        denominator *= 10;
    }
    return factor / denominator * numerator + factor % denominator * numerator / denominator;
}

template <size_t N>
std::optional<uint64_t> parse_quantity(std::string_view text, const std::array<unit, N> &units) noexcept {
    size_t end = 0;
    while (end < text.size() && is_digit(text[end])) {
        ++end;
    }
    const std::optional<uint64_t> whole = parse_count(text.substr(0, end));
    if (!whole) {
        return std::nullopt;
    }
    std::string_view digits;
    if (end < text.size() && text[end] == '.') {
        const size_t start = ++end;
        while (end < text.size() && is_digit(text[end])) {
            ++end;
        }
        digits = text.substr(start, end - start);
        if (digits.empty()) {
            return std::nullopt;
        }
    }
    while (end < text.size() && text[end] == ' ') {
        ++end;
    }
    for (const unit &u : units) {
        if (same_word(text.substr(end), u.name)) {
            const uint64_t fraction = fraction_of(u.factor, digits);
            if (*whole > (std::numeric_limits<uint64_t>::max() - fraction) / u.factor) {
                return std::nullopt;
            }
            return *whole * u.factor + fraction;
        }
    }
    return std::nullopt;
}

template <size_t N>
std::string format_quantity(uint64_t value, const std::array<unit, N> &units, size_t first, size_t last) {
    for (size_t i = first; i <= last; ++i) {
        if (value != 0 && value % units[i].factor == 0) {
            return fmt::format("{}{}", value / units[i].factor, units[i].name);
        }
    }
    return fmt::format("{}", value);
}

}  // namespace

std::optional<uint64_t> parse_count(std::string_view text) noexcept {
    uint64_t value = 0;
    const char *end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    if (text.empty() || error != std::errc{} || stopped != end) {
        return std::nullopt;
    }
    return value;
}

std::optional<uint64_t> parse_bytes(std::string_view text) noexcept {
    return parse_quantity(text, k_byte_units);
}

std::optional<uint64_t> parse_rate(std::string_view text) noexcept {
    return parse_quantity(text, k_rate_units);
}

std::string format_bytes(uint64_t value) {
    return format_quantity(value, k_byte_units, 2, 5);
}

std::string format_rate(uint64_t value) {
    return format_quantity(value, k_rate_units, 2, 5);
}

}  // namespace ebb
