// step_bench --check: operations, and a small training run whose gradients and weights must be the same bits whenever
// it is run again, in any mode.
#pragma once

#include <string>
#include <vector>

#include "operation_check.hpp"
#include "step_settings.hpp"

namespace step {

struct training_result {
    std::string name;      // model and mode
    bool same = false;     // as the first run of that model, in mode keep
    size_t differing = 0;  // values
};

struct check_results {
    device_facts facts;
    std::vector<operation_result> operations;
    std::vector<training_result> trainings;

    [[nodiscard]] bool good() const;
};

[[nodiscard]] check_results run_checks(const step_settings &s);
[[nodiscard]] std::string check_text(const check_results &results);
[[nodiscard]] std::string check_json(const check_results &results);

}  // namespace step
