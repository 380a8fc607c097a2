// ebb plan.
#include <gmock/gmock.h>

#include "base/quantity.hpp"
#include "cli_fixture.hpp"

namespace ebb::cli::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char *k_names[] = {"keep", "recompute", "moving_nothing"};

class plan_command_ : public cli_files {
protected:
    std::string record() { return write("step.json", step_model_to_json(recorded_step())); }
    // Of it 1 GiB is always held and 4 GiB are tensors.
    arguments recorded(const arguments &more = {}) {
        return joined({"plan", "--machine", "h100-pcie5", "--model", record()}, more);
    }
};

TEST_F(plan_command_, says_what_the_plan_gives_and_what_else_would) {
    const ran r = run(small_step("plan", {"--micro-batch", "2", "--device-bytes", "45GiB"}));
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.err, IsEmpty());
    EXPECT_THAT(r.out, AllOf(HasSubstr("this plan"), HasSubstr("lower bound"), HasSubstr("gap to the bound"),
                             HasSubstr("worth of a little more"), HasSubstr("logits, four fp32 buffers"),
                             HasSubstr("mlpwi_0"), HasSubstr("2 x 4096 tokens")));
}

TEST_F(plan_command_, json_is_complete_and_consistent) {
    const nlohmann::json j =
        run(small_step("plan", {"--micro-batch", "2", "--device-bytes", "45GiB", "--json"})).json();
    EXPECT_EQ(j["feasible"], true);
    const nlohmann::json &p = j["predicted"];
    EXPECT_GE(p["step_ms"], j["bound_ms"]);
    EXPECT_LE(p["device_peak_gib"], 45.0);
    EXPECT_NEAR(p["tokens_per_second"].get<double>(), 2 * 4096 * 1e3 / p["step_ms"].get<double>(), 0.01);
    EXPECT_GT(p["tflops"], 0);
    for (const char *other : k_names) {
        if (j[other]["feasible"]) {
            EXPECT_LE(p["step_ms"], j[other]["step_ms"]) << other;
        } else {
            EXPECT_GT(j[other]["missing_gib"], 0) << other;
        }
    }
    EXPECT_EQ(j["keep"]["feasible"], false);
    double fixed = 0;
    for (const auto &part : j["fixed_parts_gib"]) {
        fixed += part.get<double>();
    }
    EXPECT_NEAR(fixed, j["fixed_gib"], 1e-6);
    for (const nlohmann::json &row : j["placements"]) {
        EXPECT_EQ(row["keep"].get<int>() + row["offload"].get<int>() + row["recompute"].get<int>(), row["tensors"]);
    }
    EXPECT_GE(j["shadow_prices"]["device_seconds_per_gib"], 0);
    EXPECT_GE(j["shadow_prices"]["d2h_seconds_per_gb_per_second"], -1e-9);
    EXPECT_GE(j["shadow_prices"]["h2d_seconds_per_gb_per_second"], -1e-9);
}

TEST_F(plan_command_, what_does_not_fit_fails_and_names_a_budget_that_does) {
    const arguments args = small_step("plan", {"--micro-batch", "2", "--device-bytes", "28.5GiB"});
    ran r = run(args);
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.out, IsEmpty());
    EXPECT_THAT(r.err, AllOf(HasSubstr("28.5 GiB"), HasSubstr("--device-bytes ")));
    const std::string least = r.err.substr(r.err.rfind(' ') + 1, r.err.size() - r.err.rfind(' ') - 2);
    ASSERT_TRUE(parse_bytes(least).has_value()) << r.err;
    EXPECT_EQ(run(small_step("plan", {"--micro-batch", "2", "--device-bytes", least})).status, 0);

    r = run(joined(args, {"--json"}));
    EXPECT_EQ(r.status, 1);
    EXPECT_EQ(r.json()["feasible"], false);
    EXPECT_NEAR(r.json()["smallest_feasible_gib"].get<double>() * (1 << 30), static_cast<double>(*parse_bytes(least)),
                1 << 20);
}

TEST_F(plan_command_, a_save_set_is_kept_or_offloaded_and_the_rest_recomputed) {
    const nlohmann::json j = run(small_step("plan", {"--micro-batch", "2", "--device-bytes", "45GiB", "--json",
                                                     "--policy", "query_proj=offload,mlpwi_0=device"}))
                                 .json();
    for (const nlohmann::json &row : j["placements"]) {
        const bool saved =
            row["name"] == "query_proj" || row["name"] == "mlpwi_0" || row["name"] == "decoder_layer_input";
        EXPECT_EQ(row["recompute"], saved ? 0 : 32) << row;
    }
}

TEST_F(plan_command_, names_that_mean_no_tensor_are_noted) {
    const ran r = run(small_step("plan", {"--policy", "quary_proj=offload"}));
    EXPECT_EQ(r.status, 0);
    EXPECT_THAT(r.err, HasSubstr("quary_proj"));
}

TEST_F(plan_command_, the_largest_micro_batch_fits_and_the_next_does_not) {
    const arguments args = small_step("plan", {"--device-bytes", "40GiB", "--json"});
    const nlohmann::json j = run(joined(args, {"--max-micro-batch"})).json();
    const auto largest = j["largest_micro_batch"].get<int>();
    EXPECT_GE(largest, 2);
    EXPECT_EQ(j["micro_batch"], largest);
    EXPECT_LE(j["predicted"]["device_peak_gib"], 40.0);
    EXPECT_EQ(run(joined(args, {"--micro-batch", std::to_string(largest)})).status, 0);
    EXPECT_EQ(run(joined(args, {"--micro-batch", std::to_string(largest + 1)})).status, 1);
    const ran none = run(small_step("plan", {"--device-bytes", "12GiB", "--max-micro-batch"}));
    EXPECT_EQ(none.status, 1);
    EXPECT_THAT(none.err, HasSubstr("--device-bytes "));
}

TEST_F(plan_command_, recorded_steps_are_planned_and_plans_written) {
    const std::string out = path("plan.json");
    written_.push_back(out);
    const ran r = run(recorded({"--device-bytes", "4GiB", "--out", out}));
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, AllOf(HasSubstr("recorded step"), HasSubstr("always held")));
    EXPECT_THAT(r.out, Not(HasSubstr("x 4096 tokens")));
    const nlohmann::json plan = nlohmann::json::parse(read(out));
    EXPECT_EQ(plan["ebb_plan"], 1);
    EXPECT_EQ(plan["tensors"].size(), 16U);
    const nlohmann::json j = run(recorded({"--device-bytes", "4GiB", "--json"})).json();
    EXPECT_TRUE(j["predicted"]["tflops"].is_null());
    EXPECT_NEAR(j["fixed_gib"].get<double>(), 1.0, 1e-9);
}

TEST_F(plan_command_, a_recorded_step_takes_a_policy_by_its_own_names) {
    const nlohmann::json j = run(recorded({"--json", "--policy", "gate=remat,*=offload"})).json();
    EXPECT_EQ(j["placements"][1]["name"], "gate");
    EXPECT_EQ(j["placements"][1]["recompute"], 8);
    const ran r = run(recorded({"--policy", "input=remat"}));
    EXPECT_EQ(r.status, 2);
    EXPECT_THAT(r.err, AllOf(HasSubstr("layer.0/input"), HasSubstr("recompute")));
}

TEST_F(plan_command_, a_recorded_step_has_its_sizes) {
    ran r = run(recorded({"--sequence", "8192"}));
    EXPECT_EQ(r.status, 2);
    EXPECT_THAT(r.err, HasSubstr("--sequence"));
    r = run(recorded({"--max-micro-batch"}));
    EXPECT_EQ(r.status, 2);
    EXPECT_THAT(r.err, HasSubstr("--max-micro-batch"));
}

TEST_F(plan_command_, staging_is_a_part_of_the_plan) {
    const nlohmann::json j =
        run(small_step("plan", {"--micro-batch", "2", "--device-bytes", "45GiB", "--memory", "staging", "--json"}))
            .json();
    EXPECT_EQ(j["memory"], "staging");
    EXPECT_LE(j["predicted"]["device_peak_gib"], 45.0);
    const bool moves = j["predicted"]["reloaded_gib"] > 0;
    EXPECT_EQ(j["staging_gib"] > 0, moves);
}

TEST_F(plan_command_, host_memory_is_a_budget_too) {
    const nlohmann::json j =
        run(small_step("plan", {"--micro-batch", "2", "--device-bytes", "45GiB", "--host-bytes", "1GiB", "--json"}))
            .json();
    EXPECT_LE(j["predicted"]["host_peak_gib"], 1.0);
}

TEST_F(plan_command_, a_file_that_cannot_be_written_is_a_failure) {
    const ran r = run(recorded({"--out", path("no/such/folder/plan.json")}));
    EXPECT_EQ(r.status, 1);
    EXPECT_THAT(r.err, HasSubstr("cannot be written"));
}

TEST_F(plan_command_, progress_is_shown_on_terminals_only) {
    const arguments args = small_step("plan", {"--device-bytes", "40GiB", "--max-micro-batch", "--json"});
    EXPECT_THAT(run(args).err, IsEmpty());
    const ran watched = run(args, true);
    EXPECT_THAT(watched.err, HasSubstr("trying micro-batch 2"));
    EXPECT_EQ(watched.err.back(), '\r');
    EXPECT_EQ(watched.json()["feasible"], true);
}

}  // namespace
}  // namespace ebb::cli::test
