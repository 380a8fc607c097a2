// A recorded step with measured times, as the planner sees it.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/step_model.hpp"
#include "schedule/step_record.hpp"

namespace ebb {

struct record_model {
    step_model model;
    std::vector<uint32_t> tensor_of;  // by entry; none: a view, whose bytes are another's
    std::vector<uint32_t> entry_of;   // by tensor
};

// work_ns: before each event of the record; collective_ns: of each of its collectives, or none. Names are left empty.
[[nodiscard]] record_model model_of(const step_record &record, const std::vector<double> &work_ns,
                                    const std::vector<double> &collective_ns);

}  // namespace ebb
