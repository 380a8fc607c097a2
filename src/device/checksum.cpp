#include <cstring>

#include "device/device.hpp"

namespace ebb {
namespace {

// A polynomial over 64-bit words: accumulator * p^n + sum of mixed word i * p^(n-1-i). Unlike a plain chain of
// multiplications it can be summed in any number of independent parts, here eight words at a time, on a GPU by
// a block of threads, and still gives the same value.
constexpr uint64_t k_base = 0x9E3779B97F4A7C15ULL;  // odd: no bit of a word is ever lost
constexpr uint64_t k_tail_base = 0xD6E8FEB86659FD93ULL;
constexpr uint64_t k_tail_salt = 0xE7037ED1A0B428DBULL;
constexpr uint64_t k_word_salt = 0xA0761D6478BD642FULL;  // so that words of zeros count

constexpr uint64_t power(uint32_t exponent) noexcept {
    uint64_t value = 1;
    for (uint32_t i = 0; i < exponent; ++i) {
        value *= k_base;
    }
    return value;
}

// Brings the high bits down as well: without that, two words that differ in their highest bits only (the sign of a
// float) could be swapped unnoticed, because differences of powers are even.
constexpr uint64_t mixed(uint64_t word) noexcept {
    word ^= k_word_salt;
    return word ^ (word >> 32U);
}

uint64_t word_at(const unsigned char *data) noexcept {
    uint64_t word = 0;
    std::memcpy(&word, data, sizeof word);
    return word;
}

// Eight words with one step of the chain.
uint64_t add_block(uint64_t accumulator, const unsigned char *data) noexcept {
    uint64_t even = mixed(word_at(data)) * power(7) + mixed(word_at(data + 16)) * power(5) +
                    mixed(word_at(data + 32)) * power(3) + mixed(word_at(data + 48)) * power(1);
    uint64_t odd = mixed(word_at(data + 8)) * power(6) + mixed(word_at(data + 24)) * power(4) +
                   mixed(word_at(data + 40)) * power(2) + mixed(word_at(data + 56));
    return accumulator * power(8) + even + odd;
}

}  // namespace

uint64_t checksum_bytes(uint64_t accumulator, const void *data, uint64_t size_bytes) noexcept {
    const auto *bytes = static_cast<const unsigned char *>(data);
    for (; size_bytes >= 64; size_bytes -= 64, bytes += 64) {
        accumulator = add_block(accumulator, bytes);
    }
    for (; size_bytes >= 8; size_bytes -= 8, bytes += 8) {
        accumulator = accumulator * k_base + mixed(word_at(bytes));
    }
    if (size_bytes > 0) {
        uint64_t tail = 0;
        std::memcpy(&tail, bytes, size_bytes);
        // The length stands in the top byte, which a tail never fills; another multiplier and an addend tell a tail
        // from a full word.
        accumulator = accumulator * k_tail_base + k_tail_salt + mixed(tail | size_bytes << 56U);
    }
    return accumulator;
}

}  // namespace ebb
