#include "step_runs.hpp"

#include <algorithm>

#include "ebb_call.hpp"
#include "host_step_device.hpp"
#include "step_trainer.hpp"

namespace step {
namespace {

// Looks at the device's memory where a step begins: Ebb's staging changes there alone.
class memory_watch {
public:
    memory_watch(step_device &device, run_details &to) : device_(device), to_(to) {}

    void look() {
        const bytes_by_kind peak = device_.account().take_peak();
        if (sum_of(peak) > sum_of(to_.memory)) {
            to_.memory = peak;
        }
        device_.account().set(memory_kind::staging, train::statistics_of(device_.training().runtime()).staging_bytes);
        to_.used_bytes = device_.peak_used_bytes();
    }

private:
    step_device &device_;
    run_details &to_;
};

}  // namespace

std::unique_ptr<step_device> make_step_device(const step_settings &s, const train::mode &m, const step_shape &shape) {
    ebb_runtime_options options = train::options_of(m, s.offload, saved_by(shape, sizeof(float)));
    options.max_activation_bytes = saved_by(shape, sizeof(float)).largest_bytes;
    return std::make_unique<host_step_device>(options, s.loop_of(m.name).steps);
}

void step_runs::train_once(step_device &device, const step_shape &shape, train::mode_result &result,
                           run_details &details) {
    train::progress_line line(result);
    const train::loop_settings steps = settings_.loop_of(result.mode);
    memory_watch watch(device, details);
    step_trainer run(device, settings_, shape);
    const auto at_step = [&watch](int64_t /*step*/) { watch.look(); };
    const train::loop_result done = run.run(steps, at_step, line.of_steps(steps.steps));
    watch.look();
    train::take_times(done, shape.tokens() * settings_.accumulation, result);
    // Those that all modes have: offload-auto takes more steps to plan.
    result.losses.resize(static_cast<size_t>(std::min(steps.steps, settings_.steps)));
    result.kept_by_necessity = run.kept_by_necessity() / steps.steps;
    if (result.mode == "offload-auto") {
        recorded_[result.micro_batch] = recorded_by(device.training().runtime(), device.measure_copies());
    }
}

train::mode_result step_runs::run_mode(const train::mode &m, int64_t micro_batch) {
    train::mode_result result;
    result.mode = m.name;
    result.micro_batch = micro_batch;
    const step_shape shape = settings_.shape_at(micro_batch);
    const std::unique_ptr<step_device> device = make_step_device(settings_, m, shape);
    run_details details;
    train::run_or_note_why([&] { train_once(*device, shape, result, details); }, result);
    result.device_peak_bytes = device->peak_used_bytes();
    result.pinned_peak_bytes = train::statistics_of(device->training().runtime()).pinned_peak_bytes;
    details_.push_back(details);
    return result;
}

void step_runs::predict(const std::vector<train::mode_result> &results) {
    for (size_t i = 0; i < results.size(); ++i) {
        const auto recorded = recorded_.find(results[i].micro_batch);
        if (recorded != recorded_.end() && !results[i].out_of_memory) {
            details_[i].predicted_ms = predicted_ms(recorded->second, results[i].mode);
        }
    }
}

void step_runs::run_all(std::vector<train::mode_result> &results) {
    const auto one = [this](const train::mode &m, int64_t micro_batch) { return run_mode(m, micro_batch); };
    train::run_modes(settings_, one, results);
    predict(results);
}

}  // namespace step
