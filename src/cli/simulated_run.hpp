// A few steps of a plan through the real runtime on the simulated machine, and what they were like.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "cli/chosen_plan.hpp"
#include "cli/workload.hpp"
#include "model/step_builder.hpp"

namespace ebb::cli {

struct simulation_options {
    uint64_t steps = 4;
    uint64_t seed = 1;
    double jitter = 0;  // the work of a step takes up to that part more or less
    bool alone = false;
};

struct simulated_step {
    double step_ns = 0;
    double waiting_ns = 0;  // beyond work and recompute
    double hidden_ns = 0;   // of copies
    double exposed_ns = 0;  // of copies that the runtime made a stream wait for
    uint64_t copied_out_bytes = 0;
    uint64_t copied_back_bytes = 0;
    uint64_t reloads = 0;
    uint64_t late_reloads = 0;  // not issued ahead
    uint64_t no_room = 0;       // of those: found no slot
};

struct simulated_run {
    std::vector<simulated_step> steps;
    simulated_step usual;  // the mean, without the first two: those are recorded and matched
    uint64_t device_peak_bytes = 0;
    std::vector<named_bytes> device_peak_parts;
    uint64_t host_peak_bytes = 0;
    uint64_t log_hash = 0;
};

[[nodiscard]] result<simulated_run> simulate(const workload &w, const chosen_plan &chosen,
                                             const simulation_options &options);

}  // namespace ebb::cli
