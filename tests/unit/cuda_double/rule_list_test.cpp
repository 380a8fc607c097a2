// Each rule of the table has a test that is named after it.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "cuda_double/rules.hpp"

namespace ebb::test {
namespace {

bool is_tested(const char *name) {
    const ::testing::UnitTest &all = *::testing::UnitTest::GetInstance();
    for (int suite = 0; suite < all.total_test_suite_count(); ++suite) {
        for (int test = 0; test < all.GetTestSuite(suite)->total_test_count(); ++test) {
            if (std::strcmp(all.GetTestSuite(suite)->GetTestInfo(test)->name(), name) == 0) {
                return true;
            }
        }
    }
    return false;
}

TEST(cuda_rule_list, every_rule_is_tested_and_says_where_it_is_from) {
    EXPECT_FALSE(is_tested("no_such_rule"));
    for (const cuda_rule_entry &entry : k_cuda_rules) {
        EXPECT_TRUE(is_tested(entry.name)) << entry.name;
        EXPECT_STREQ(entry.name, entry_of(entry.rule).name);
        EXPECT_GT(std::strlen(entry.text), 0U);
        EXPECT_GT(std::strlen(entry.source), 0U);
    }
}

}  // namespace
}  // namespace ebb::test
