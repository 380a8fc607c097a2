// The checksum of all devices (checksum_bytes) as what it is, a polynomial over 64-bit words:
//     accumulator * p^n + sum over i of mixed(word i) * p^(n-1-i), and then the bytes of a last word that is not full.
// Unlike a plain chain of multiplications it can be summed in any number of parts, in any order, and gives the same
// value; here is how a GPU splits it. Plain functions that the kernel and the tests on a CPU share; C++17, for nvcc.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define EBB_HOST_DEVICE __host__ __device__
#define EBB_DEVICE_ALONE __device__
#else
#define EBB_HOST_DEVICE
#define EBB_DEVICE_ALONE
#endif

namespace ebb::checksum {

constexpr uint64_t k_base = 0x9E3779B97F4A7C15ULL;  // odd: no bit of a word is ever lost
constexpr uint64_t k_tail_base = 0xD6E8FEB86659FD93ULL;
constexpr uint64_t k_tail_salt = 0xE7037ED1A0B428DBULL;
constexpr uint64_t k_word_salt = 0xA0761D6478BD642FULL;  // so that words of zeros count
constexpr uint64_t k_word_bytes = 8;

// p^exponent.
EBB_HOST_DEVICE constexpr uint64_t power(uint64_t exponent) {
    uint64_t value = 1;
    for (uint64_t square = k_base; exponent != 0; exponent >>= 1U, square *= square) {
        value *= (exponent & 1U) != 0 ? square : 1;
    }
    return value;
}

// Brings the high bits down as well: without that, two words that differ in their highest bits only (the sign of a
// float) could be swapped unnoticed, because differences of powers are even.
EBB_HOST_DEVICE constexpr uint64_t mixed(uint64_t word) {
    word ^= k_word_salt;
    return word ^ (word >> 32U);
}

// The length stands in the top byte, which a tail never fills; another multiplier and an addend tell a tail from a full
// word.
EBB_HOST_DEVICE constexpr uint64_t add_tail(uint64_t accumulator, uint64_t tail, uint64_t tail_bytes) {
    return accumulator * k_tail_base + k_tail_salt + mixed(tail | tail_bytes << 56U);
}

// ---- In parts ------------------------------------------------------------------------------------------------
//
// Words are counted from the last one, whose power is 0, and lie in rows of k_lanes: word `place` is in row
// place / k_lanes, lane place % k_lanes. A block takes a run of rows, and each of its threads one lane of them, so that
// threads side by side read words side by side.

constexpr uint32_t k_lanes = 256;
constexpr uint32_t k_most_blocks = 2048;
constexpr uint64_t k_rows_worth_a_block = 16;

struct split {
    uint64_t words = 0;
    uint64_t tail_bytes = 0;
    uint64_t rows = 0;
    uint64_t rows_per_block = 0;
    uint32_t blocks = 0;
};

EBB_HOST_DEVICE constexpr split split_bytes(uint64_t size_bytes) {
    split parts;
    parts.words = size_bytes / k_word_bytes;
    parts.tail_bytes = size_bytes % k_word_bytes;
    parts.rows = (parts.words + k_lanes - 1) / k_lanes;
    parts.rows_per_block = (parts.rows + k_most_blocks - 1) / k_most_blocks;
    if (parts.rows_per_block < k_rows_worth_a_block) {
        parts.rows_per_block = k_rows_worth_a_block;
    }
    parts.blocks = static_cast<uint32_t>((parts.rows + parts.rows_per_block - 1) / parts.rows_per_block);
    return parts;
}

// What a thread sums up: its lane's words of the block's rows, as if the block's first row were the last of all.
// word_at(i) gives word i of the data; in a kernel it is a function of the device.
template <class Words>
EBB_DEVICE_ALONE constexpr uint64_t lane_sum(const split &parts, uint32_t block, uint32_t lane, const Words &word_at) {
    constexpr uint64_t k_row_power = power(k_lanes);
    const uint64_t first = block * parts.rows_per_block;
    uint64_t row = first + parts.rows_per_block < parts.rows ? first + parts.rows_per_block : parts.rows;
    uint64_t sum = 0;
    while (row > first) {
        --row;
        const uint64_t place = row * k_lanes + lane;
        sum = sum * k_row_power + (place < parts.words ? mixed(word_at(parts.words - 1 - place)) : 0);
    }
    return sum * power(lane);
}

// The sum over a block's lanes, at the block's place among all.
EBB_HOST_DEVICE constexpr uint64_t placed_sum(const split &parts, uint32_t block, uint64_t sum_of_lanes) {
    return sum_of_lanes * power(block * parts.rows_per_block * k_lanes);
}

// From the accumulator before, the sum over all blocks and the bytes behind the last full word.
EBB_HOST_DEVICE constexpr uint64_t finish(const split &parts, uint64_t accumulator, uint64_t sum_of_blocks,
                                          uint64_t tail) {
    accumulator = accumulator * power(parts.words) + sum_of_blocks;
    return parts.tail_bytes == 0 ? accumulator : add_tail(accumulator, tail, parts.tail_bytes);
}

}  // namespace ebb::checksum
