// The suite itself: what it covers, that a comparison is what it says, and how it is reported.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "model/profile_library.hpp"
#include "policy/baseline.hpp"
#include "policy/policy_comparison.hpp"
#include "policy/policy_report.hpp"
#include "policy/policy_workloads.hpp"

namespace ebb::baselines {
namespace {

const policy_workload &workload_named(const std::string &name) {
    const std::vector<policy_workload> &all = policy_workloads();
    return *std::find_if(all.begin(), all.end(), [&](const policy_workload &w) { return w.name == name; });
}

TEST(policy_workloads, cover_models_machines_lengths_and_budgets) {
    std::set<std::string> names, machines, models;
    std::set<uint64_t> lengths;
    bool accumulates = false, is_staged = false, is_tight = false, is_roomy = false;
    for (const policy_workload &w : policy_workloads()) {
        names.insert(w.name);
        machines.insert(w.machine);
        models.insert(w.model);
        lengths.insert(w.sequence);
        accumulates = accumulates || w.micro_batches > 1;
        is_staged = is_staged || w.pipeline_stages > 1;
        is_tight = is_tight || w.budget_part <= 0.1;
        is_roomy = is_roomy || w.budget_part >= 1;
    }
    EXPECT_EQ(names.size(), policy_workloads().size());
    EXPECT_GE(names.size(), 20U);
    EXPECT_EQ(machines.size(), machine_names().size());
    EXPECT_EQ(models.size(), model_names().size());
    EXPECT_GE(lengths.size(), 4U);
    EXPECT_TRUE(accumulates && is_staged && is_tight && is_roomy);
}

// The same step, whatever is saved of it: so that all policies are compared on one.
TEST(policy_workloads, a_save_set_changes_placements_only) {
    const result<built_workload> built = build_workload(workload_named("MoE 8K H200"));
    ASSERT_TRUE(built.ok()) << built.why().text();
    const std::vector<built_step> &steps = built.value().by_save_set;
    ASSERT_EQ(steps.size(), policy_save_sets().size());
    for (const built_step &s : steps) {
        ASSERT_EQ(s.model.tensors.size(), steps[0].model.tensors.size());
        ASSERT_EQ(s.model.events.size(), steps[0].model.events.size());
        EXPECT_EQ(s.model.fixed_bytes, steps[0].model.fixed_bytes);
        for (const step_tensor &t : s.model.tensors) {
            EXPECT_TRUE(!t.can_offload || t.size_bytes >= k_least_moved_bytes) << t.name;
        }
    }
    for (size_t a = 0; a < steps.size(); ++a) {
        for (size_t b = 0; b < a; ++b) {
            EXPECT_NE(steps[a].save_set.placement, steps[b].save_set.placement) << a << ", " << b;
        }
    }
}

TEST(policy_comparison, ebb_is_first_within_the_budget) {
    for (const char *name : {"dense 8B 8K H100", "MoE 8K H200", "dense 8B 32K GB200"}) {
        const result<policy_comparison> c = compare_policies(workload_named(name));
        ASSERT_TRUE(c.ok()) << c.why().text();
        const policy_comparison &v = c.value();
        EXPECT_LT(v.least_bytes, v.budget_bytes);
        EXPECT_LT(v.budget_bytes, v.keep_bytes);
        EXPECT_EQ(v.rivals.size(), 10U);
        ASSERT_NE(v.best(), nullptr);
        for (const policy_row &r : v.rivals) {
            EXPECT_TRUE(!r.fits || r.device_bytes <= v.budget_bytes) << r.system;
            EXPECT_TRUE(!r.fits || r.step_ns >= v.one_pool.bound_ns) << r.system << " is faster than anything can be";
        }
        EXPECT_LE(v.ebb_row.device_bytes, v.budget_bytes);
        EXPECT_LE(v.staging_row.device_bytes, v.budget_bytes);
        EXPECT_TRUE(v.is_first_or_tied()) << name << ": " << v.ratio() << " of " << v.best()->system;
        // Measuring all by itself, the runtime gets there, too.
        EXPECT_LE(v.automatic_row.device_bytes, v.budget_bytes);
        EXPECT_LE(v.ratio_of(v.automatic_row), 1 + k_tie) << name;
        EXPECT_GT(v.ratio_of(v.automatic_row), 0) << name;
    }
}

// Its collectives take as long as its compute, and copies slow them: moving what could be kept would cost 3 %.
TEST(policy_comparison, a_plan_knows_that_copies_slow_collectives) {
    const result<policy_comparison> c = compare_policies(workload_named("MoE 8K H200, keeps"));
    ASSERT_TRUE(c.ok()) << c.why().text();
    EXPECT_TRUE(c.value().is_first_or_tied()) << c.value().ratio() << " of " << c.value().best()->system;
    EXPECT_NEAR(c.value().one_pool.step_ns, c.value().one_pool.predicted_ns, 1e-3 * c.value().one_pool.step_ns);
}

policy_comparison made_up() {
    policy_comparison c;
    c.name = "made up";
    c.rivals.resize(3);
    c.rivals[0] = {"keep", "all; -", 90e6, 0, 0, 0, false};
    c.rivals[1] = {"group", "all; last 1 stay", 110e6, 10e6, 0, 0, true};
    c.rivals[2] = {"XLA LHS", "all; no limit", 100e6, 5e6, 0, 0, true};
    c.ebb_row = {"Ebb", "", 100.05e6, 0, 0, 0, true};
    c.staging_row = {"Ebb staging", "", 0, 0, 0, 0, false};
    c.automatic_row = {"Ebb automatic", "", 102e6, 0, 0, 0, true};
    c.one_pool.bound_ns = 80e6;
    return c;
}

TEST(policy_comparison, the_best_rival_is_the_fastest_that_fits) {
    policy_comparison c = made_up();
    EXPECT_EQ(c.best()->system, "XLA LHS");
    EXPECT_TRUE(c.is_first_or_tied());
    c.ebb_row.step_ns = 100.2e6;
    EXPECT_FALSE(c.is_first_or_tied());
    c.ebb_row = {"Ebb", "", 50e6, 0, 0, 0, false};  // fast, but beyond the budget
    EXPECT_FALSE(c.is_first_or_tied());
}

TEST(policy_report, says_who_was_fastest_and_who_did_not_fit) {
    policy_comparison behind = made_up();
    behind.name = "the other one";
    behind.ebb_row.step_ns = 120e6;
    const std::string table = policy_table({made_up(), behind});
    EXPECT_NE(table.find("100.00*"), std::string::npos) << table;
    EXPECT_NE(table.find("tied"), std::string::npos) << table;
    EXPECT_NE(table.find("BEHIND"), std::string::npos) << table;
    EXPECT_NE(table.find("first or tied (within 0.1 %): 1 of 2"), std::string::npos) << table;

    const nlohmann::json report = policy_json({made_up()});
    const nlohmann::json &w = report["workloads"][0];
    EXPECT_EQ(w["best"], "XLA LHS (all; no limit)");
    EXPECT_DOUBLE_EQ(w["best_ms"], 100.0);
    EXPECT_DOUBLE_EQ(w["ratio"], 1.0005);
    EXPECT_TRUE(w["first_or_tied"]);
    EXPECT_DOUBLE_EQ(w["automatic_ms"], 102.0);
    EXPECT_EQ(w["systems"].size(), 6U);
    EXPECT_EQ(w["systems"][0]["status"], "out_of_memory");
    EXPECT_TRUE(w["systems"][0]["step_ms"].is_null());
}

}  // namespace
}  // namespace ebb::baselines
