// What the program prints: what is run, the tables for people, or one JSON object.
#pragma once

#include <string>
#include <vector>

#include "comparison.hpp"
#include "step_runs.hpp"
#include "step_settings.hpp"

namespace step {

std::string context_text(const step_settings &s);
std::string tables_text(const std::vector<train::mode_result> &results, const std::vector<run_details> &details);
std::string json_text(const step_settings &s, const std::vector<train::mode_result> &results,
                      const std::vector<run_details> &details);

}  // namespace step
