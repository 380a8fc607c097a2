// What --check prints for people; that it finds what is wrong stands in operation_check_test.cpp.
#include "training_check.hpp"

#include <gmock/gmock.h>

namespace step {
namespace {

using ::testing::ContainsRegex;
using ::testing::Not;

TEST(check_text, says_what_is_wrong) {
    check_results results;
    results.operations = {{"norm", 1e-6, 2e-5, true}, {"gates", 0.5, 2e-5, true}, {"clear", 0, 2e-5, false}};
    results.trainings = {{"dense keep", true, 0}, {"moe recompute", false, 7}};
    const std::string text = check_text(results);
    EXPECT_FALSE(results.good());
    EXPECT_THAT(text, ContainsRegex("norm +1.00e-06 +2.00e-05 +yes +ok"));
    EXPECT_THAT(text, ContainsRegex("gates +5.00e-01 +2.00e-05 +yes +WRONG"));
    EXPECT_THAT(text, ContainsRegex("clear +0.00e.00 +2.00e-05 +NO +WRONG"));
    EXPECT_THAT(text, ContainsRegex("dense keep +the same bits"));
    EXPECT_THAT(text, ContainsRegex("moe recompute +7 values DIFFER"));
    results.operations.resize(1);
    EXPECT_FALSE(results.good());
    results.trainings.resize(1);
    EXPECT_TRUE(results.good());
    EXPECT_THAT(check_text(results), Not(ContainsRegex("WRONG|DIFFER|NO")));
}

}  // namespace
}  // namespace step
