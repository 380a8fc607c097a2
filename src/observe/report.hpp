// The report of a run: totals, and a row per name. Text for people, JSON for machines.
#pragma once

#include <string>
#include <vector>

#include "base/name_table.hpp"
#include "observe/counters.hpp"

namespace ebb {

struct report_input {
    const counters &totals;
    const std::vector<name_counters> &by_name;
    const name_table &names;
    std::vector<std::string> unmatched_patterns;  // of the policy: that no name matched
    std::vector<std::string> unmatched_names;     // that matched no pattern, and were kept
    std::string device;
};

[[nodiscard]] std::string report_text(const report_input &input);
[[nodiscard]] std::string report_json(const report_input &input);

}  // namespace ebb
