// What the program prints: what is run, the tables for people, or one JSON object.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comparison.hpp"
#include "step_runs.hpp"
#include "step_settings.hpp"

namespace step {

std::string context_text(const step_settings &s);
std::string tables_text(const std::vector<train::mode_result> &results, const step_runs &runs);
std::string json_text(const step_settings &s, const std::vector<train::mode_result> &results, const step_runs &runs);

// What carried out what; a line, or fields.
std::string facts_text(const device_facts &facts);
nlohmann::ordered_json facts_json(const device_facts &facts);

}  // namespace step
