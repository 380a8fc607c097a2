// What was measured, as a table and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "link/call_cost.hpp"
#include "link/measure_cell.hpp"

namespace ebb::link {

struct link_report {
    std::vector<std::pair<std::string, std::string>> context;
    std::vector<cell_times> cells;
    std::vector<call_cost> calls;
};

[[nodiscard]] std::string link_table(const link_report &report);
[[nodiscard]] nlohmann::ordered_json link_json(const link_report &report);

}  // namespace ebb::link
