// Comparisons as a table of text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "policy/policy_comparison.hpp"

namespace ebb::baselines {

[[nodiscard]] std::string policy_table(const std::vector<policy_comparison> &all);
[[nodiscard]] nlohmann::json policy_json(const std::vector<policy_comparison> &all);

}  // namespace ebb::baselines
