#include "base/status.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

namespace ebb {
namespace {

status fails_when(bool failing) {
    return failing ? status(code::busy, "one activation is live") : status();
}

result<int> passes_on(bool failing) {
    EBB_TRY(fails_when(failing));
    return 7;
}

TEST(status, ok_is_the_default_and_has_no_text) {
    const status s;
    EXPECT_TRUE(s.ok());
    EXPECT_EQ(s.code(), code::ok);
    EXPECT_EQ(s.text(), "");
}

TEST(status, try_returns_the_failure_to_the_caller) {
    EXPECT_EQ(passes_on(false).value(), 7);
    const result<int> failed = passes_on(true);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.why().code(), code::busy);
    EXPECT_EQ(failed.why().text(), "one activation is live");
}

TEST(status, result_holds_what_can_only_be_moved) {
    result<std::unique_ptr<int>> made = std::make_unique<int>(3);
    ASSERT_TRUE(made.ok());
    const std::unique_ptr<int> taken = std::move(made).value();
    EXPECT_EQ(*taken, 3);
}

TEST(status, each_code_has_a_name_of_its_own) {
    std::set<std::string> names;
    for (int32_t i = 0; i <= static_cast<int32_t>(code::internal); ++i) {
        names.insert(code_name(static_cast<code>(i)));
    }
    EXPECT_EQ(names.size(), 13U);
    EXPECT_EQ(names.count("EBB_UNKNOWN_STATUS"), 0U);
    EXPECT_STREQ(code_name(static_cast<code>(13)), "EBB_UNKNOWN_STATUS");
    EXPECT_STREQ(code_name(static_cast<code>(-1)), "EBB_UNKNOWN_STATUS");
}

}  // namespace
}  // namespace ebb
