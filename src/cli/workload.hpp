// A step to work on: from a model's dimensions and a machine's rates, or recorded; with its budgets.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "cli/model_arguments.hpp"
#include "model/machine_profile.hpp"
#include "model/model_profile.hpp"
#include "model/step_builder.hpp"
#include "schedule/plan.hpp"

namespace ebb::cli {

struct workload {
    machine_profile machine;
    std::optional<model_profile> model;  // none: a recorded step
    step_settings settings;
    std::string title;
    // Of a recorded one without what only dimensions tell: fixed parts, tokens and FLOPs.
    built_step step;
    plan_budget budget;

    [[nodiscard]] double tokens_per_second(double step_ns) const noexcept;
    [[nodiscard]] double tflops(double step_ns) const noexcept;
};

// Whether the step may be placed in other ways than the policy says.
enum class policy_use : uint8_t { start, save_set };

[[nodiscard]] result<workload> make_workload(const model_arguments &arguments, policy_use use);
// The same with another micro-batch.
[[nodiscard]] status set_micro_batch(workload &w, uint64_t micro_batch);

// The file's text if it is a recorded step.
[[nodiscard]] result<std::optional<step_model>> read_recorded_step(const std::string &name_or_path);

// Two lines: what is trained where, and within what.
[[nodiscard]] std::string describe(const workload &w);

}  // namespace ebb::cli
