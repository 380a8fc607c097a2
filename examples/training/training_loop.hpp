// The loop over the steps of a run, the same for all modes and programs: the host launches one step ahead of the
// device, and the steps after the first few are timed.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ebb/ebb.h"
#include "training_device.hpp"

namespace train {

struct loop_settings {
    int64_t steps = 0;
    int64_t warm_up_steps = 0;  // of these; not timed
};

struct loop_result {
    std::vector<double> losses;
    std::vector<double> step_seconds;  // of the timed steps
    ebb_statistics before{};           // the runtime's counters when the timed steps began ...
    ebb_statistics after{};            // ... and after the last
};

// Called when a step was launched, with the number of steps finished and the last of their losses.
using progress = std::function<void(int64_t finished, double loss)>;

// Throws call_failed or interrupted.
loop_result run_steps(training_device &device, const loop_settings &s,
                      const std::function<void(int64_t step)> &launch_step, const progress &report);

}  // namespace train
