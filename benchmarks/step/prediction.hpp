// What the planner predicts for a step that was recorded, with what is done with its activations and how fast copies
// are. Nothing but this file's source sees Ebb's core.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "step_device.hpp"

namespace step {

// Of a run in offload-auto, after its last step.
struct recorded_run {
    std::string record;  // ebb_record_export's; with the times of its work
    std::string plan;    // ebb_plan_export's; empty: none was made
    uint64_t device_budget_bytes = 0;
    copy_rates rates;
};

[[nodiscard]] recorded_run recorded_by(ebb_runtime *runtime, const copy_rates &rates);

// The time of the step in this mode; none for modes that fix how far copies run ahead, of which the planner knows
// nothing, and where the record has no times. Throws std::runtime_error for a record or plan that cannot be read.
[[nodiscard]] std::optional<double> predicted_ms(const recorded_run &run, const std::string &mode);

}  // namespace step
