// Results of modes as a table and as JSON; and what both say of the machine.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comparison.hpp"

namespace train {

// Beside the columns that all programs have.
struct extra_column {
    std::string head;
    std::vector<std::string> cells;  // by result
};

std::string table(const std::vector<mode_result> &results, const std::vector<extra_column> &extra = {});
// One line: what it runs on.
std::string machine_text(const offload_settings &s);

nlohmann::ordered_json result_json(const mode_result &result);
// What is under "context" in every program.
nlohmann::ordered_json context_json(const run_settings &s);

double mib(uint64_t bytes);

}  // namespace train
