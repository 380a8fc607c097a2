#include "base/edit_distance.hpp"

#include <gtest/gtest.h>

namespace ebb {
namespace {

TEST(edit_distance, counts_insertions_deletions_and_replacements) {
    EXPECT_EQ(edit_distance("", ""), 0U);
    EXPECT_EQ(edit_distance("lanes", "lanes"), 0U);
    EXPECT_EQ(edit_distance("", "abc"), 3U);
    EXPECT_EQ(edit_distance("abc", ""), 3U);
    EXPECT_EQ(edit_distance("lane", "lanes"), 1U);
    EXPECT_EQ(edit_distance("lanes", "lines"), 1U);
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
    EXPECT_EQ(edit_distance("flaw", "lawn"), 2U);
}

}  // namespace
}  // namespace ebb
