// Ebb on a workload, through the real runtime: the planner's plan from a machine's rates, and automatic mode, which
// measures what it needs.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "model/machine_profile.hpp"
#include "schedule/plan.hpp"
#include "schedule/step_model.hpp"

namespace ebb::baselines {

struct ebb_run {
    bool feasible = false;
    double step_ns = 0;
    double predicted_ns = 0;
    double bound_ns = 0;
    uint64_t device_peak_bytes = 0;  // fixed bytes included
    uint64_t host_peak_bytes = 0;
    uint64_t no_slot = 0;                              // reloads that found no room
    uint64_t kept = 0, offloaded = 0, recomputed = 0;  // bytes
};

// Placements are the planner's.
[[nodiscard]] result<ebb_run> run_planned(const step_model &model, const machine_profile &machine, memory_mode mode,
                                          uint64_t device_budget_bytes);
// The runtime knows the calls and its budgets, nothing else. The last of some steps counts; nothing is predicted.
[[nodiscard]] result<ebb_run> run_automatic(const step_model &model, const machine_profile &machine,
                                            uint64_t device_budget_bytes);

}  // namespace ebb::baselines
