// Predictions for a record small enough to add up by hand: two tensors, 10 ms of work forward and 20 ms backward for
// each, 1 ms at the end.
#include "prediction.hpp"

#include <gtest/gtest.h>

namespace step {
namespace {

constexpr const char *k_record = R"({"ebb_record": 1, "fixed_bytes": 0, "operations": ["work"],
 "tensors": [
  {"name": "step", "bytes": 512, "micro_batch": 0, "stage": 0, "layer": 0, "keep": true, "offload": false},
  {"name": "a", "bytes": 1000000, "micro_batch": 0, "stage": 0, "layer": 0, "keep": true, "offload": true},
  {"name": "b", "bytes": 1000000, "micro_batch": 0, "stage": 0, "layer": 1, "keep": true, "offload": true,
   "recompute": {"ns": 7000000, "from": [1]}}],
 "events": [["produce", 0],
  ["work", 0, 10000000, 0], ["produce", 1], ["work", 0, 10000000, 0], ["produce", 2],
  ["use", 2], ["work", 0, 20000000, 0], ["release", 2], ["use", 1], ["work", 0, 20000000, 0], ["release", 1],
  ["work", 0, 1000000, 0], ["use", 0], ["release", 0]]})";

constexpr const char *k_plan = R"({"ebb_plan": 1, "staging_bytes": 1100000,
 "tensors": [["step", 0, 0, "keep"], ["a", 0, 0, "offload"], ["b", 0, 0, "keep"]]})";

recorded_run some_run() {
    // 1 ms a tensor out, 30 ms back: longer than the 20 ms in which it may be hidden.
    return {k_record, k_plan, 3'200'000, {1e9, 1e9 / 30}};
}

TEST(prediction, keep_is_the_work) {
    EXPECT_NEAR(predicted_ms(some_run(), "keep").value(), 61, 1e-6);
}

TEST(prediction, recompute_adds_what_it_costs) {
    EXPECT_NEAR(predicted_ms(some_run(), "recompute").value(), 68, 1e-6);
}

TEST(prediction, automatic_follows_the_plan_within_its_budget) {
    // Room for all: the source is still there when it is used.
    EXPECT_NEAR(predicted_ms(some_run(), "offload-auto").value(), 61, 1e-6);
    recorded_run tight = some_run();
    tight.device_budget_bytes = 2'200'000;
    const double waits = predicted_ms(tight, "offload-auto").value();
    EXPECT_GT(waits, 61.5);
    tight.device_budget_bytes = 100;
    EXPECT_FALSE(predicted_ms(tight, "offload-auto").has_value()) << "it does not fit";
}

TEST(prediction, there_is_none_without_what_it_takes) {
    EXPECT_FALSE(predicted_ms(some_run(), "offload-sync").has_value());
    EXPECT_FALSE(predicted_ms({}, "keep").has_value());
    recorded_run no_plan = some_run();
    no_plan.plan.clear();
    EXPECT_FALSE(predicted_ms(no_plan, "offload-auto").has_value());
    recorded_run broken = some_run();
    broken.record = "{";
    EXPECT_THROW(static_cast<void>(predicted_ms(broken, "keep")), std::runtime_error);
}

}  // namespace
}  // namespace step
