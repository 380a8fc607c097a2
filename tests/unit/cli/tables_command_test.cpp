// ebb tables: its shape. What the figures must be is in tests/published.
#include <gmock/gmock.h>

#include "cli_fixture.hpp"

namespace ebb::cli::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> keys_of(const nlohmann::json &object) {
    std::vector<std::string> keys;
    for (const auto &entry : object.items()) {
        keys.push_back(entry.key());
    }
    std::sort(keys.begin(), keys.end());
    return keys;
}

using names = std::vector<std::string>;

void check_row(const nlohmann::json &row) {
    EXPECT_EQ(keys_of(row), (names{"assumptions", "fitted", "peak_parts", "peak_range", "predicted", "published", "row",
                                   "status", "table", "tflops_range"}));
    for (const char *side : {"published", "predicted"}) {
        EXPECT_EQ(keys_of(row[side]), (names{"host_gib", "peak_gib", "tflops"}));
    }
    const bool ran = row["status"] == "ok";
    EXPECT_EQ(row["predicted"]["tflops"].is_number(), ran);
    EXPECT_EQ(row["published"]["tflops"].is_number(), ran);
    EXPECT_EQ(row["tflops_range"].is_array(), ran);
    double parts = 0;
    for (const auto &part : row["peak_parts"]) {
        parts += part.get<double>();
    }
    EXPECT_NEAR(parts, row["predicted"]["peak_gib"], 1e-6);
    for (const nlohmann::json &a : row["assumptions"]) {
        EXPECT_EQ(keys_of(a), (names{"default", "flipped_tflops", "name"}));
        EXPECT_GE(a["flipped_tflops"], row["tflops_range"][0]);
        EXPECT_LE(a["flipped_tflops"], row["tflops_range"][1]);
    }
}

TEST(tables_command_, json_has_all_rows_and_nulls_where_there_is_no_figure) {
    const ran r = run({"tables", "--json"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.err, IsEmpty());
    const nlohmann::json j = r.json();
    EXPECT_EQ(keys_of(j), (names{"notes", "ours", "rows"}));
    ASSERT_EQ(j["rows"].size(), 9U);
    for (const nlohmann::json &row : j["rows"]) {
        check_row(row);
    }
    EXPECT_EQ(j["rows"][4]["status"], "out_of_memory");
    EXPECT_GE(j["notes"].size(), 3U);
    ASSERT_EQ(j["ours"].size(), 4U);
    for (const nlohmann::json &o : j["ours"]) {
        EXPECT_EQ(keys_of(o), (names{"best_published_tflops", "comparable", "copy_buffers_gib", "pipelined_rule_gib",
                                     "settings", "table", "tflops"}));
        EXPECT_EQ(o["settings"], nlohmann::json::array());
        EXPECT_EQ(o["copy_buffers_gib"].is_null(), !o["comparable"].get<bool>());
    }
}

TEST(tables_command_, text_shows_prediction_difference_assumptions_notes_and_ours) {
    const ran r = run({"tables"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, AllOf(HasSubstr("908.2"), HasSubstr("fitted"), HasSubstr("difference"), HasSubstr("145.113"),
                             HasSubstr("Assumptions, each flipped alone"), HasSubstr("The tables disagree"),
                             HasSubstr("same save set and collectives"), HasSubstr("not comparable")));
}

TEST(tables_command_, takes_no_other_argument) {
    EXPECT_EQ(run({"tables", "1"}).status, 2);
}

}  // namespace
}  // namespace ebb::cli::test
