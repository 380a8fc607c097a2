// ebb simulate.
#include <gmock/gmock.h>

#include "base/quantity.hpp"
#include "cli_fixture.hpp"

namespace ebb::cli::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class simulate_command_ : public cli_files {
protected:
    arguments recorded(const arguments &more = {}) {
        return joined(
            {"simulate", "--machine", "h100-pcie5", "--model", write("step.json", step_model_to_json(recorded_step()))},
            more);
    }
    static const nlohmann::json &placement_of(const nlohmann::json &j, const std::string &name) {
        for (const nlohmann::json &row : j["placements"]) {
            if (row["name"] == name) {
                return row;
            }
        }
        ADD_FAILURE() << "no tensor " << name;
        return j;
    }
};

TEST_F(simulate_command_, says_what_came_out_beside_what_was_predicted) {
    const ran r = run(small_step("simulate", {"--micro-batch", "2", "--device-bytes", "45GiB"}));
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.err, IsEmpty());
    EXPECT_THAT(r.out, AllOf(HasSubstr("predicted  simulated"), HasSubstr("tokens/s"), HasSubstr("TFLOP/s"),
                             HasSubstr("device peak by part"), HasSubstr("kept tensors"), HasSubstr("late reloads"),
                             HasSubstr("copies hidden"), HasSubstr("steps, ms:")));
}

TEST_F(simulate_command_, the_evaluator_predicts_it) {
    for (const char *memory : {"one_pool", "staging"}) {
        for (const char *policy : {"automatic", "offload", "recompute"}) {
            const ran r = run(small_step("simulate", {"--micro-batch", "2", "--device-bytes", "48GiB", "--alone",
                                                      "--json", "--memory", memory, "--policy", policy}));
            ASSERT_EQ(r.status, 0) << r.err;
            const nlohmann::json j = r.json();
            const nlohmann::json &s = j["simulated"];
            const nlohmann::json &p = j["predicted"];
            // Copies share the memory's rate with kernels, which the evaluator leaves out.
            EXPECT_NEAR(s["step_ms"].get<double>() / p["step_ms"].get<double>(), 1, 0.01) << memory << ' ' << policy;
            EXPECT_NEAR(s["device_peak_gib"], p["device_peak_gib"], 0.1) << memory << ' ' << policy;
            EXPECT_NEAR(s["copied_out_gib"], p["offloaded_gib"], 1e-6) << memory << ' ' << policy;
            double parts = 0;
            for (const auto &part : s["device_peak_parts_gib"]) {
                parts += part.get<double>();
            }
            EXPECT_NEAR(parts, s["device_peak_gib"], 1e-6);
            EXPECT_LE(s["device_peak_gib"], 48.0);
        }
    }
}

TEST_F(simulate_command_, policies_do_what_they_say) {
    const arguments args = small_step("simulate", {"--json", "--policy"});
    const nlohmann::json keep = run(joined(args, {"keep"})).json();
    EXPECT_EQ(keep["simulated"]["copied_out_gib"], 0);
    EXPECT_EQ(placement_of(keep, "mlpwi_0")["keep"], 32);
    const nlohmann::json again = run(joined(args, {"recompute"})).json();
    EXPECT_EQ(placement_of(again, "mlpwi_0")["recompute"], 32);
    EXPECT_GT(again["simulated"]["step_ms"], keep["simulated"]["step_ms"]);
    const nlohmann::json named = run(joined(args, {"mlpwi_0=offload,mlpwi_1=device"})).json();
    EXPECT_EQ(placement_of(named, "mlpwi_0")["offload"], 32);
    EXPECT_EQ(placement_of(named, "mlpwi_1")["keep"], 32);
    EXPECT_EQ(placement_of(named, "query_proj")["recompute"], 32);
}

TEST_F(simulate_command_, a_policy_that_does_not_fit_fails_and_names_a_budget_that_does) {
    const arguments args = small_step("simulate", {"--micro-batch", "2", "--policy", "keep"});
    const ran r = run(joined(args, {"--device-bytes", "45GiB"}));
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, AllOf(HasSubstr("policy keep does not fit"), HasSubstr("--device-bytes ")));
    const size_t at = r.err.rfind("--device-bytes ") + 15;
    const std::string least = r.err.substr(at, r.err.find('\n', at) - at);
    ASSERT_TRUE(parse_bytes(least).has_value()) << r.err;
    EXPECT_EQ(run(joined(args, {"--device-bytes", least})).status, 0);
    EXPECT_EQ(run(joined(args, {"--device-bytes", std::to_string(*parse_bytes(least) - (1 << 20))})).status, 1);
    EXPECT_EQ(run(small_step("simulate", {"--micro-batch", "2", "--device-bytes", "28.5GiB"})).status, 1);
}

TEST_F(simulate_command_, a_written_plan_is_played) {
    const std::string plan = path("plan.json");
    written_.push_back(plan);
    arguments planned = recorded({"--device-bytes", "4GiB", "--out", plan, "--json"});
    planned[0] = "plan";
    const nlohmann::json made = run(planned).json();
    const ran r = run(recorded({"--device-bytes", "4GiB", "--plan", plan, "--json"}));
    ASSERT_EQ(r.status, 0) << r.err;
    const nlohmann::json j = r.json();
    EXPECT_EQ(j["predicted"]["step_ms"], made["predicted"]["step_ms"]);
    EXPECT_NEAR(j["simulated"]["step_ms"].get<double>() / made["predicted"]["step_ms"].get<double>(), 1, 0.02);
    EXPECT_EQ(j["placements"], made["placements"]);
    EXPECT_TRUE(j["simulated"]["tflops"].is_null());
}

TEST_F(simulate_command_, a_plan_for_another_step_is_refused) {
    const std::string plan =
        write("plan.json", R"({"ebb_plan": 1, "staging_bytes": 0, "tensors": [["x", 0, 0, "keep"]]})");
    ran r = run(recorded({"--plan", plan}));
    EXPECT_EQ(r.status, 2);
    EXPECT_THAT(r.err, AllOf(HasSubstr("/tensors/0"), HasSubstr("\"x\"")));
    r = run(recorded({"--plan", path("missing.json")}));
    EXPECT_EQ(r.status, 2);
    r = run(recorded({"--plan", plan, "--policy", "keep"}));
    EXPECT_EQ(r.status, 2);
    EXPECT_THAT(r.err, AllOf(HasSubstr("--plan"), HasSubstr("--policy")));
}

TEST_F(simulate_command_, the_same_seed_gives_the_same_steps) {
    const arguments args = small_step("simulate", {"--json", "--jitter", "0.2", "--steps", "6", "--seed"});
    const std::string first = run(joined(args, {"7"})).out;
    EXPECT_EQ(first, run(joined(args, {"7"})).out);
    EXPECT_NE(first, run(joined(args, {"8"})).out);
    const nlohmann::json j = nlohmann::json::parse(first);
    EXPECT_EQ(j["steps"].size(), 6U);
    EXPECT_NE(j["steps"][4]["step_ms"], j["steps"][5]["step_ms"]);
}

TEST_F(simulate_command_, reloads_are_on_demand_in_the_first_step_and_ahead_later) {
    const nlohmann::json j = run(recorded({"--device-bytes", "2560MiB", "--policy", "offload", "--json"})).json();
    EXPECT_GT(j["steps"][0]["late_reloads"], 0);
    EXPECT_GT(j["simulated"]["reloads"], 0);
    EXPECT_LT(j["simulated"]["late_reloads"], j["steps"][0]["late_reloads"]);
    EXPECT_LT(j["simulated"]["step_ms"], j["steps"][0]["step_ms"]);
}

}  // namespace
}  // namespace ebb::cli::test
