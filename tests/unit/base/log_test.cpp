#include "base/log.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ebb {
namespace {

struct captured {
    std::vector<std::string> lines;

    static void sink(void *context, int32_t level, const char *line) {
        static_cast<captured *>(context)->lines.push_back(std::string(log_level_name(static_cast<log_level>(level))) +
                                                          "|" + line);
    }
};

TEST(logger, lets_through_what_is_as_important_as_its_level) {
    captured got;
    logger log(captured::sink, &got, log_level::info);
    log.write(log_level::error, "e");
    log.write(log_level::info, "i");
    log.write(log_level::debug, "d");
    EXPECT_EQ(got.lines, (std::vector<std::string>{"error|e", "info|i"}));
    log.set_level(log_level::error);
    log.write(log_level::warning, "w");
    EXPECT_EQ(got.lines.size(), 2U);
    EXPECT_FALSE(log.enabled(log_level::warning));
}

TEST(logger, one_call_is_one_line) {
    captured got;
    const logger log(captured::sink, &got, log_level::warning);
    log.write(log_level::warning, "first\nsecond\r\nthird");
    EXPECT_EQ(got.lines, std::vector<std::string>{"warning|first second  third"});
}

TEST(logger, writes_to_standard_error_by_default) {
    testing::internal::CaptureStderr();
    const logger log;
    log.write(log_level::warning, "low on memory");
    log.write(log_level::info, "not shown");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "ebb: warning: low on memory\n");
}

}  // namespace
}  // namespace ebb
