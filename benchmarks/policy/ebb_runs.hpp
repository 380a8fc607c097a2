// Ebb on a workload: the planner's plan, played through the real runtime.
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

[[nodiscard]] result<ebb_run> run_ebb(const step_model &model, const machine_profile &machine, memory_mode mode,
                                      uint64_t device_budget_bytes);

}  // namespace ebb::baselines
