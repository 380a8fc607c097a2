#include "base/quantity.hpp"

#include <gtest/gtest.h>

#include <optional>

namespace ebb {
namespace {

constexpr uint64_t k_mib = 1U << 20U;

TEST(parse_bytes, takes_units_that_are_powers_of_two) {
    EXPECT_EQ(parse_bytes("0"), 0U);
    EXPECT_EQ(parse_bytes("123"), 123U);
    EXPECT_EQ(parse_bytes("7B"), 7U);
    EXPECT_EQ(parse_bytes("4K"), 4096U);
    EXPECT_EQ(parse_bytes("4KiB"), 4096U);
    EXPECT_EQ(parse_bytes("16M"), 16 * k_mib);
    EXPECT_EQ(parse_bytes("16 MiB"), 16 * k_mib);
    EXPECT_EQ(parse_bytes("2g"), 2048 * k_mib);
    EXPECT_EQ(parse_bytes("1T"), k_mib * k_mib);
    EXPECT_EQ(parse_bytes("1TiB"), k_mib * k_mib);
}

TEST(parse_bytes, takes_fractions_and_rounds_them_down) {
    EXPECT_EQ(parse_bytes("1.5G"), 1536 * k_mib);
    EXPECT_EQ(parse_bytes("0.25KiB"), 256U);
    EXPECT_EQ(parse_bytes("0.3K"), 307U);
    EXPECT_EQ(parse_bytes("1.999999999B"), 1U);
    EXPECT_EQ(parse_bytes("1.999999999999999999T"), 2 * k_mib * k_mib - 1100);
}

TEST(parse_bytes, refuses_what_is_malformed) {
    for (const char *text : {"", "K", "-1", "+1", "1.", ".5", "1.5.5K", "1 K B", "1KB", "1MB", "1GB/s", "0x10", "1e3",
                             "1KK", " 1", "1K ", "ten"}) {
        EXPECT_EQ(parse_bytes(text), std::nullopt) << '"' << text << '"';
    }
}

TEST(parse_bytes, refuses_more_than_64_bits) {
    EXPECT_EQ(parse_bytes("18446744073709551615"), ~uint64_t{0});
    EXPECT_EQ(parse_bytes("18446744073709551616"), std::nullopt);
    EXPECT_EQ(parse_bytes("16777215T"), 16777215 * k_mib * k_mib);
    EXPECT_EQ(parse_bytes("16777216T"), std::nullopt);
    EXPECT_EQ(parse_bytes("99999999999999999999K"), std::nullopt);
}

TEST(parse_rate, takes_units_that_are_powers_of_ten) {
    EXPECT_EQ(parse_rate("12GB/s"), 12'000'000'000U);
    EXPECT_EQ(parse_rate("1.5MB/s"), 1'500'000U);
    EXPECT_EQ(parse_rate("3KB/s"), 3'000U);
    EXPECT_EQ(parse_rate("1TB/s"), 1'000'000'000'000U);
    EXPECT_EQ(parse_rate("2GiB/s"), 2048 * k_mib);
    EXPECT_EQ(parse_rate("500"), 500U);
    EXPECT_EQ(parse_rate("500B/s"), 500U);
}

TEST(parse_rate, refuses_what_is_not_a_rate) {
    for (const char *text : {"", "1G", "1GB", "fast", "1GB/h", "-1GB/s"}) {
        EXPECT_EQ(parse_rate(text), std::nullopt) << '"' << text << '"';
    }
}

TEST(parse_count, takes_whole_numbers_only) {
    EXPECT_EQ(parse_count("0"), 0U);
    EXPECT_EQ(parse_count("42"), 42U);
    for (const char *text : {"", "-1", "+1", "1.0", "1K", " 1", "1 ", "18446744073709551616"}) {
        EXPECT_EQ(parse_count(text), std::nullopt) << '"' << text << '"';
    }
}

TEST(format_bytes, is_exact_and_read_back) {
    EXPECT_EQ(format_bytes(0), "0");
    EXPECT_EQ(format_bytes(1000), "1000");
    EXPECT_EQ(format_bytes(1536), "1536");
    EXPECT_EQ(format_bytes(4096), "4KiB");
    EXPECT_EQ(format_bytes(3 * k_mib), "3MiB");
    EXPECT_EQ(format_rate(12'000'000'000), "12GB/s");
    EXPECT_EQ(format_rate(1'234), "1234");
    for (const uint64_t value : {uint64_t{1}, uint64_t{1023}, uint64_t{1} << 62U, 5 * k_mib, uint64_t{7'000'000'000}}) {
        EXPECT_EQ(parse_bytes(format_bytes(value)), value);
        EXPECT_EQ(parse_rate(format_rate(value)), value);
    }
}

}  // namespace
}  // namespace ebb
