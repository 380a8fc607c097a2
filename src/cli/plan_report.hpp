// What a plan is and gives, as tables and as JSON: shared by the commands that plan and that simulate.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/workload.hpp"
#include "schedule/evaluator.hpp"
#include "schedule/plan.hpp"

namespace ebb::cli {

// Why it does not fit: "the device falls 3.2 GiB short at decoder/layer.3".
[[nodiscard]] std::string shortage_text(const evaluation &e, const step_model &model);

// Null where a recorded step does not tell.
[[nodiscard]] nlohmann::ordered_json rate_json(const workload &w, double step_ns);
[[nodiscard]] nlohmann::ordered_json evaluation_json(const evaluation &e, const workload &w);
[[nodiscard]] nlohmann::ordered_json workload_json(const workload &w);

[[nodiscard]] std::vector<named_bytes> fixed_parts_of(const workload &w);
[[nodiscard]] std::string parts_text(const std::vector<named_bytes> &parts);

// By the tensors' names without their layers.
[[nodiscard]] std::string placements_text(const plan &p, const step_model &model);
[[nodiscard]] nlohmann::ordered_json placements_json(const plan &p, const step_model &model);

}  // namespace ebb::cli
