// Which plan a command works with: the planner's, a policy's, or one from a file.
#pragma once

#include <string>

#include "base/status.hpp"
#include "cli/model_arguments.hpp"
#include "cli/workload.hpp"
#include "schedule/evaluator.hpp"
#include "schedule/plan.hpp"

namespace ebb::cli {

struct chosen_plan {
    std::string called;
    plan what;
    evaluation predicted;
};

// `plan_path`: a file; empty: as the policy says. A plan that does not fit is out_of_device_memory or
// out_of_host_memory, with how much is missing and what would do.
[[nodiscard]] result<chosen_plan> choose_plan(const model_arguments &a, const std::string &plan_path,
                                              const workload &w);

}  // namespace ebb::cli
