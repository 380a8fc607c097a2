// The checksum split as a GPU splits it, summed on the CPU in an order that no GPU promises either.
#include "device/checksum_parts.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "device/device.hpp"

namespace ebb {
namespace {

std::vector<unsigned char> random_bytes(size_t size) {
    std::mt19937_64 random(size);
    std::vector<unsigned char> bytes(size);
    for (unsigned char &byte : bytes) {
        byte = static_cast<unsigned char>(random());
    }
    return bytes;
}

uint64_t word_of(const unsigned char *data, uint64_t size_bytes) {
    uint64_t word = 0;
    if (size_bytes != 0) {  // of nothing, there is no address
        std::memcpy(&word, data, size_bytes);
    }
    return word;
}

// What the two kernels do, blocks and lanes from the last to the first.
uint64_t in_parts(uint64_t accumulator, const unsigned char *data, uint64_t size_bytes) {
    const checksum::split parts = checksum::split_bytes(size_bytes);
    EXPECT_LE(parts.blocks, checksum::k_most_blocks);
    EXPECT_GE(parts.blocks * parts.rows_per_block, parts.rows);
    uint64_t all = 0;
    for (uint32_t block = parts.blocks; block-- > 0;) {
        uint64_t sum = 0;
        for (uint32_t lane = checksum::k_lanes; lane-- > 0;) {
            sum += checksum::lane_sum(parts, block, lane, [&](uint64_t i) {
                EXPECT_LT(i, parts.words);
                return word_of(data + i * checksum::k_word_bytes, checksum::k_word_bytes);
            });
        }
        all += checksum::placed_sum(parts, block, sum);
    }
    const uint64_t tail = word_of(data + parts.words * checksum::k_word_bytes, parts.tail_bytes);
    return checksum::finish(parts, accumulator, all, tail);
}

TEST(checksum_parts, the_sum_in_parts_is_the_sum) {
    constexpr uint64_t k_row_bytes = checksum::k_lanes * checksum::k_word_bytes;
    constexpr uint64_t k_block_bytes = checksum::k_rows_worth_a_block * k_row_bytes;
    std::vector<uint64_t> sizes;
    for (uint64_t size = 0; size <= 80; ++size) {
        sizes.push_back(size);
    }
    for (const uint64_t around : {k_row_bytes, 2 * k_row_bytes, k_block_bytes, 3 * k_block_bytes}) {
        for (uint64_t size = around - 17; size <= around + 17; ++size) {
            sizes.push_back(size);
        }
    }
    for (const uint64_t size : sizes) {
        for (const uint64_t shift : {uint64_t{0}, uint64_t{1}, uint64_t{4}, uint64_t{7}}) {
            const std::vector<unsigned char> bytes = random_bytes(size + shift);
            EXPECT_EQ(in_parts(size * 77, bytes.data() + shift, size),
                      checksum_bytes(size * 77, bytes.data() + shift, size))
                << size << " bytes shifted by " << shift;
        }
    }
}

// Where blocks take more rows than they need to be worth it.
TEST(checksum_parts, so_many_rows_that_blocks_grow) {
    constexpr uint64_t k_size =
        (checksum::k_most_blocks * checksum::k_rows_worth_a_block + 3) * checksum::k_lanes * checksum::k_word_bytes +
        1237;
    ASSERT_GT(checksum::split_bytes(k_size).rows_per_block, checksum::k_rows_worth_a_block);
    const std::vector<unsigned char> bytes = random_bytes(k_size);
    EXPECT_EQ(in_parts(5, bytes.data(), k_size), checksum_bytes(5, bytes.data(), k_size));
}

TEST(checksum_parts, powers) {
    uint64_t value = 1;
    for (uint64_t exponent = 0; exponent < 600; ++exponent, value *= checksum::k_base) {
        ASSERT_EQ(checksum::power(exponent), value);
    }
}

}  // namespace
}  // namespace ebb
