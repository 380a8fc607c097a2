#include "step_runs.hpp"

#include "ebb_call.hpp"
#include "step_trainer.hpp"

namespace step {
namespace {

// Looks at the device's memory where a step begins: Ebb's staging changes there alone.
class memory_watch {
public:
    explicit memory_watch(step_device &device) : device_(device) {}

    void look() {
        const bytes_by_kind peak = device_.account().take_peak();
        if (sum_of(peak) > sum_of(peak_)) {
            peak_ = peak;
        }
        device_.account().set(memory_kind::staging, train::statistics_of(device_.training().runtime()).staging_bytes);
        static_cast<void>(device_.peak_used_bytes());
    }
    [[nodiscard]] const bytes_by_kind &peak() const { return peak_; }

private:
    step_device &device_;
    bytes_by_kind peak_{};
};

}  // namespace

// One of the others that train together.
void step_runs::train_beside(step_device &device, int64_t rank, const step_shape &shape, const std::string &mode) {
    step_trainer run(device, settings_, shape, rank);
    run.run(
        settings_.loop_of(mode), [](int64_t /*step*/) {}, [](int64_t /*finished*/, double /*loss*/) {});
}

void step_runs::train_once(step_device &device, const step_shape &shape, train::mode_result &result) {
    const train::loop_settings steps = settings_.loop_of(result.mode);
    memory_watch watch(device);
    train::progress_line line(result);
    step_trainer run(device, settings_, shape, 0);
    const train::loop_result done = run.run(
        steps, [&watch](int64_t /*step*/) { watch.look(); }, line.of_steps(steps.steps));
    watch.look();
    details_.back().memory = watch.peak();
    train::take_times(done, shape.tokens() * settings_.accumulation, result);
    // Those that all modes have: offload-auto takes more steps to plan.
    result.losses.resize(static_cast<size_t>(std::min(steps.steps, settings_.steps)));
    result.kept_by_necessity = run.kept_by_necessity() / steps.steps;
    if (result.mode == "offload-auto") {
        recorded_[result.micro_batch] = recorded_by(device.training().runtime(), device.measure_copies());
    }
}

void step_runs::note_device(step_device &device, train::mode_result &result) {
    facts_ = device.facts();
    details_.back().used_bytes = device.peak_used_bytes();
    result.device_peak_bytes = details_.back().used_bytes;
    result.pinned_peak_bytes = train::statistics_of(device.training().runtime()).pinned_peak_bytes;
}

train::mode_result step_runs::run_mode(const train::mode &m, int64_t micro_batch) {
    train::mode_result result;
    result.mode = m.name;
    result.micro_batch = micro_batch;
    details_.emplace_back();
    const step_shape shape = settings_.shape_at(micro_batch);
    const auto one = [&](step_device &device, int64_t rank) {
        if (rank != 0) {
            train_beside(device, rank, shape, m.name);
            return;
        }
        try {
            train_once(device, shape, result);
        } catch (const train::call_failed &) {
            note_device(device, result);
            throw;
        }
        note_device(device, result);
    };
    train::run_or_note_why([&] { place_.run(settings_, m, shape, one); }, result);
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
