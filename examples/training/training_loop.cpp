#include "training_loop.hpp"

#include <algorithm>

#include "ebb_call.hpp"

namespace train {

loop_result run_steps(training_device &device, const loop_settings &s,
                      const std::function<void(int64_t step)> &launch_step, const progress &report) {
    loop_result result;
    for (int64_t step = 0; step < s.steps; ++step) {
        const int64_t finished = std::max<int64_t>(step - 1, 0);
        device.wait_for_steps(finished);
        report(finished, finished > 0 ? *device.loss_of(finished - 1) : 0.0);
        device.begin_step(step);
        if (step == s.warm_up_steps) {
            device.synchronize();
        }
        check(ebb_step(device.runtime(), EBB_PHASE_TRAIN), "ebb_step");
        if (step == s.warm_up_steps) {
            result.before = statistics_of(device.runtime());
            device.begin_timing();
        }
        launch_step(step);
        device.end_step();
    }
    device.wait_for_steps(s.steps);
    check(ebb_step(device.runtime(), EBB_PHASE_EVALUATE), "ebb_step");  // ends the last training step
    device.synchronize();
    result.after = statistics_of(device.runtime());
    result.step_seconds = device.step_seconds();
    for (int64_t step = 0; step < s.steps; ++step) {
        result.losses.push_back(*device.loss_of(step));
    }
    report(s.steps, result.losses.back());
    return result;
}

}  // namespace train
