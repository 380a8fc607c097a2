// What has to be said beside the tables, in sentences whose numbers are computed.
#pragma once

#include <string>
#include <vector>

#include "model/published.hpp"

namespace ebb {

[[nodiscard]] std::vector<std::string> published_notes(const published_workload &workload,
                                                       const published_report &report);

}  // namespace ebb
