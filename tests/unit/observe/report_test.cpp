#include "observe/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace ebb {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t k_mib = uint64_t{1} << 20U;

class report_test : public testing::Test {
protected:
    name_counters &name(const std::string &scope, const std::string &text) {
        const name_table::node n = names_.intern(names_.intern(name_table::k_root, scope), text);
        by_name_.resize(names_.size());
        by_name_[n].calls = 1;
        return by_name_[n];
    }
    [[nodiscard]] report_input input() const {
        return {totals_, by_name_, names_, unmatched_, unmatched_names_, "null"};
    }
    // The row of a name, its columns.
    [[nodiscard]] std::vector<std::string> row(const std::string &called) const {
        std::istringstream text(report_text(input()));
        for (std::string line; std::getline(text, line);) {
            std::istringstream words(line);
            std::vector<std::string> columns{std::istream_iterator<std::string>(words), {}};
            if (!columns.empty() && columns[0] == called) {
                return columns;
            }
        }
        return {};
    }

    counters totals_;
    name_table names_;
    std::vector<name_counters> by_name_;
    std::vector<std::string> unmatched_;
    std::vector<std::string> unmatched_names_;
};

TEST_F(report_test, numbered_layers_are_one_row_for_people) {
    for (const char *layer : {"layer.0", "layer.1", "layer.12"}) {
        name_counters &n = name(layer, "gate");
        n.offloaded = 2;
        n.offloaded_bytes = 3 * k_mib;
        n.transfer_ns = 5'000'000;
        n.exposed_ns = 1'000'000;
    }
    name("layer.0", "v2x").kept = 1;
    EXPECT_EQ(row("layer.*/gate"),
              (std::vector<std::string>{"layer.*/gate", "3", "0", "6", "0", "9.0", "0.0", "0.0", "12.0", "3.0"}));
    EXPECT_FALSE(row("layer.*/v2x").empty()) << "a number within a word is part of the name";
    EXPECT_TRUE(row("layer.0/gate").empty());
}

TEST_F(report_test, numbers_of_names_in_a_scope_tell_values_apart) {
    for (const char *layer : {"layer.0", "layer.1"}) {
        name(layer, "wi_0").kept = 1;
        name(layer, "wi_1").offloaded = 1;
    }
    ASSERT_FALSE(row("layer.*/wi_0").empty());
    EXPECT_EQ(row("layer.*/wi_0")[2], "2");
    ASSERT_FALSE(row("layer.*/wi_1").empty());
    EXPECT_EQ(row("layer.*/wi_1")[3], "2");
}

TEST_F(report_test, each_layer_is_an_entry_for_machines) {
    name("layer.0", "gate").offloaded_bytes = 1;
    name_counters &second = name("layer.1", "gate");
    second.kept = 1;
    second.kept_by_reason[2] = 1;
    second.transfer_ns = 1;
    second.exposed_ns = 5;
    const nlohmann::json all = nlohmann::json::parse(report_json(input()));
    ASSERT_EQ(all["names"].size(), 2U);
    EXPECT_EQ(all["names"][0]["name"], "layer.0/gate");
    EXPECT_EQ(all["names"][0]["offloaded_bytes"], 1);
    EXPECT_EQ(all["names"][1]["kept_by_reason"], (nlohmann::json{{"floor", 1}}));
    EXPECT_EQ(all["names"][1]["hidden_ns"], 0) << "never below zero";
}

TEST_F(report_test, scopes_without_calls_are_no_rows) {
    name("decoder", "gate");
    EXPECT_TRUE(row("decoder").empty());
    EXPECT_EQ(nlohmann::json::parse(report_json(input()))["names"].size(), 1U);
}

TEST_F(report_test, a_budget_is_only_said_to_be_passed_when_it_was) {
    EXPECT_THAT(report_text(input()), Not(HasSubstr("budget passed")));
    totals_.over_budget_size_bytes = 2 * k_mib;
    EXPECT_THAT(report_text(input()), HasSubstr("larger than a slot 2.0"));
}

TEST_F(report_test, waste_of_pinned_memory_is_a_share_of_what_was_mapped) {
    totals_.pinned_peak_bytes = 8 * k_mib;
    totals_.pinned_peak_waste_bytes = k_mib;
    EXPECT_THAT(report_text(input()), HasSubstr("pinned 8.0 MiB (12.5 % waste)"));
    EXPECT_EQ(nlohmann::json::parse(report_json(input()))["totals"]["pinned_peak_waste_bytes"], k_mib);
    totals_ = {};
    EXPECT_THAT(report_text(input()), HasSubstr("pinned 0.0 MiB (0.0 % waste)"));
}

TEST_F(report_test, a_plan_is_shown_beside_what_came_of_it) {
    EXPECT_THAT(report_text(input()), Not(HasSubstr("plan")));
    EXPECT_TRUE(nlohmann::json::parse(report_json(input()))["plan"].is_null());
    totals_.plan = {2, 12'340'000, 12'000'000, 0, 15'000'000, 100'000, 0, 0};
    EXPECT_THAT(report_text(input()), HasSubstr("plan 2: step 12.34 ms predicted (bound 12.00, keep does not fit, "
                                                "recompute 15.00), waits 0.10 ms predicted\n"));
    nlohmann::json plan = nlohmann::json::parse(report_json(input()))["plan"];
    EXPECT_EQ(plan["predicted_ns"], 12'340'000);
    EXPECT_TRUE(plan["keep_ns"].is_null());
    EXPECT_TRUE(plan["exposed_ns"].is_null()) << "not compared yet";
    totals_.plan.exposed_ns = 250'000;
    totals_.plan.compared = 3;
    EXPECT_THAT(report_text(input()), HasSubstr("0.25 seen in the last of 3 steps compared"));
    plan = nlohmann::json::parse(report_json(input()))["plan"];
    EXPECT_EQ(plan["exposed_ns"], 250'000);
}

TEST_F(report_test, patterns_that_matched_nothing_are_named) {
    unmatched_ = {"mpl_gate"};
    EXPECT_THAT(report_text(input()), HasSubstr("'mpl_gate' matched no activation"));
    EXPECT_EQ(nlohmann::json::parse(report_json(input()))["unmatched_patterns"][0], "mpl_gate");
}

TEST_F(report_test, names_that_matched_no_pattern_are_named_once_for_all_layers) {
    unmatched_names_ = {"layer.0/bias", "layer.1/bias", "head"};
    const std::string text = report_text(input());
    EXPECT_THAT(text, HasSubstr("'layer.*/bias' matched no policy pattern and was kept\n'head' matched"));
    EXPECT_EQ(text.find("bias"), text.rfind("bias"));
    EXPECT_EQ(nlohmann::json::parse(report_json(input()))["unmatched_names"], nlohmann::json(unmatched_names_));
}

TEST_F(report_test, names_that_are_not_utf_8_are_written_all_the_same) {
    name("layer", "gate\xFF");
    EXPECT_TRUE(nlohmann::json::accept(report_json(input())));
}

}  // namespace
}  // namespace ebb
