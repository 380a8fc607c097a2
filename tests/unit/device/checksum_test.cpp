#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "device/device.hpp"

namespace ebb {
namespace {

std::vector<unsigned char> random_bytes(size_t size, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<unsigned char> bytes(size);
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<unsigned char>(random()); });
    return bytes;
}

TEST(checksum, chains_over_extents_of_whole_words) {
    const auto bytes = random_bytes(777, 1);
    for (size_t cut = 0; cut <= bytes.size(); cut += 8) {
        const uint64_t first = checksum_bytes(99, bytes.data(), cut);
        EXPECT_EQ(checksum_bytes(first, bytes.data() + cut, bytes.size() - cut),
                  checksum_bytes(99, bytes.data(), bytes.size()))
            << "cut at " << cut;
    }
}

TEST(checksum, of_nothing_is_the_accumulator) {
    EXPECT_EQ(checksum_bytes(1234, nullptr, 0), 1234U);
}

// Written out plainly: what a device that computes it in another order must arrive at.
uint64_t plain_checksum(uint64_t accumulator, const std::vector<unsigned char> &bytes) {
    const auto mixed = [](uint64_t word) {
        word ^= 0xA0761D6478BD642FULL;
        return word ^ (word >> 32U);
    };
    size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
        uint64_t word = 0;
        std::memcpy(&word, &bytes[at], 8);
        accumulator = accumulator * 0x9E3779B97F4A7C15ULL + mixed(word);
    }
    if (at < bytes.size()) {
        uint64_t word = (bytes.size() - at) << 56U;
        for (size_t i = at; i < bytes.size(); ++i) {
            word |= static_cast<uint64_t>(bytes[i]) << (8 * (i - at));
        }
        accumulator = accumulator * 0xD6E8FEB86659FD93ULL + 0xE7037ED1A0B428DBULL + mixed(word);
    }
    return accumulator;
}

TEST(checksum, equals_the_plain_definition_at_every_size) {
    for (size_t size = 0; size < 300; ++size) {
        const auto bytes = random_bytes(size, size);
        EXPECT_EQ(checksum_bytes(size, bytes.data(), bytes.size()), plain_checksum(size, bytes)) << size;
    }
}

TEST(checksum, sees_every_flipped_bit) {
    for (const size_t size : {size_t{1}, size_t{7}, size_t{8}, size_t{64}, size_t{205}}) {
        auto bytes = random_bytes(size, 3);
        const uint64_t right = checksum_bytes(0, bytes.data(), size);
        for (size_t bit = 0; bit < size * 8; ++bit) {
            bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ (1U << (bit % 8)));
            EXPECT_NE(checksum_bytes(0, bytes.data(), size), right) << "bit " << bit << " of " << size << " bytes";
            bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ (1U << (bit % 8)));
        }
    }
}

TEST(checksum, sees_order_even_where_words_differ_in_one_bit) {
    for (int bit = 0; bit < 64; ++bit) {
        for (const size_t distance : {size_t{1}, size_t{2}, size_t{8}, size_t{64}, size_t{4096}}) {
            std::vector<uint64_t> words(distance + 1, 0x3F8000003F800000ULL);
            words.front() ^= uint64_t{1} << bit;
            const uint64_t right = checksum_bytes(0, words.data(), words.size() * 8);
            std::swap(words.front(), words.back());
            EXPECT_NE(checksum_bytes(0, words.data(), words.size() * 8), right)
                << "bit " << bit << " moved by " << distance;
        }
    }
}

TEST(checksum, sees_length_even_of_zeros) {
    const std::vector<unsigned char> zeros(1000, 0);
    std::set<uint64_t> sums;
    for (size_t size = 0; size <= zeros.size(); ++size) {
        sums.insert(checksum_bytes(0, zeros.data(), size));
    }
    EXPECT_EQ(sums.size(), zeros.size() + 1);
}

TEST(checksum, tells_a_tail_from_a_word_that_looks_like_it) {
    const unsigned char word[8] = {'a', 'b', 'c', 0, 0, 0, 0, 3};
    EXPECT_NE(checksum_bytes(0, word, 3), checksum_bytes(0, word, 8));
}

TEST(checksum, does_not_care_where_the_bytes_lie) {
    const auto bytes = random_bytes(500, 4);
    const uint64_t right = checksum_bytes(7, bytes.data(), bytes.size());
    std::vector<unsigned char> moved(bytes.size() + 16);
    for (size_t shift = 0; shift < 16; ++shift) {
        std::copy(bytes.begin(), bytes.end(), moved.begin() + static_cast<std::ptrdiff_t>(shift));
        EXPECT_EQ(checksum_bytes(7, moved.data() + shift, bytes.size()), right);
    }
}

}  // namespace
}  // namespace ebb
