#include "schedule/sliding_maximum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace ebb {
namespace {

uint64_t looked_up(const std::vector<uint64_t> &values, uint32_t after, uint32_t until) {
    uint64_t most = 0;
    for (uint32_t i = after + 1; i <= until; ++i) {
        most = std::max(most, values[i]);
    }
    return most;
}

// As a step's prefetches ask, and the next step's from the start again: where a step has one reload, both ask for the
// same end.
TEST(sliding_maximum, is_what_a_look_at_the_range_gives) {
    std::mt19937_64 random(1);
    for (int round = 0; round < 2000; ++round) {
        std::vector<uint64_t> values(1 + random() % 40);
        for (uint64_t &v : values) {
            v = random() % 10;
        }
        sliding_maximum most;
        const auto last = static_cast<uint32_t>(values.size() - 1);
        for (int pass = 0; pass < 3; ++pass) {
            uint32_t until = static_cast<uint32_t>(random() % values.size());
            for (uint32_t after = 0; after <= last; after += static_cast<uint32_t>(random() % 3)) {
                until = std::max(until, after);
                ASSERT_EQ(most.over(values, after, until), looked_up(values, after, until))
                    << "round " << round << ", pass " << pass << ": after " << after << " until " << until;
                until = std::min(last, until + static_cast<uint32_t>(random() % 2));
            }
        }
    }
}

TEST(sliding_maximum, goes_back_within_the_same_range) {
    const std::vector<uint64_t> values{0, 9, 1, 2, 3};
    sliding_maximum most;
    EXPECT_EQ(most.over(values, 0, 4), 9U);
    EXPECT_EQ(most.over(values, 2, 4), 3U);
    EXPECT_EQ(most.over(values, 0, 4), 9U);
}

}  // namespace
}  // namespace ebb
