#include "training_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "step_report.hpp"
#include "step_runs.hpp"
#include "step_trainer.hpp"

namespace step {
namespace {

// Small, and so little memory that activations must move.
step_settings small_run(const step_settings &s, const char *model) {
    step_settings small = default_settings("host", model);
    small.device = s.device;
    small.gpus = s.gpus;
    small.attention = s.attention;
    small.shape = {3, 256, 4, 256, 128, 2};
    small.offload = s.offload;
    small.offload.floor_bytes = 1;
    small.accumulation = 2;
    small.steps = 12;  // enough for automatic mode to follow a plan
    small.warm_up_steps = 1;
    return small;
}

std::vector<float> state_after(run_place &place, const step_settings &s, const std::string &mode) {
    const step_shape shape = s.shape_at(s.shape.micro_batch);
    std::vector<float> state;
    place.run(s, train::find_mode(mode), shape, [&](step_device &device, int64_t rank) {
        step_trainer run(device, s, shape, rank);
        run.run(
            {s.steps, s.warm_up_steps}, [](int64_t /*step*/) {}, [](int64_t /*finished*/, double /*loss*/) {});
        if (rank == 0) {
            state = run.state();
        }
    });
    return state;
}

// Bits, so that a NaN is the same as itself.
size_t count_differing(const std::vector<float> &a, const std::vector<float> &b) {
    size_t count = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        count += std::memcmp(&a[i], &b[i], sizeof(float)) != 0 ? 1 : 0;
    }
    return count;
}

void check_training(run_place &place, const step_settings &s, std::vector<training_result> &results) {
    const std::vector<float> expected = state_after(place, s, "keep");
    for (const train::mode &m : train::all_modes()) {
        const size_t differing = count_differing(expected, state_after(place, s, m.name));
        results.push_back({fmt::format("{} {}", s.model, m.name), differing == 0, differing});
    }
}

}  // namespace

bool check_results::good() const {
    return std::all_of(operations.begin(), operations.end(), [](const operation_result &r) { return r.good(); }) &&
           std::all_of(trainings.begin(), trainings.end(), [](const training_result &r) { return r.same; });
}

check_results run_checks(const step_settings &s) {
    check_results results;
    run_place place(s);
    const step_settings dense = small_run(s, "dense");
    place.run(dense, train::find_mode("keep"), dense.shape_at(1), [&](step_device &device, int64_t rank) {
        if (rank == 0) {
            results.operations = check_operations(device);
            results.facts = device.facts();
        }
    });
    check_training(place, dense, results.trainings);
    check_training(place, small_run(s, "moe"), results.trainings);
    return results;
}

std::string check_text(const check_results &results) {
    std::string text = fmt::format("{:<22}  {:>10}  {:>10}  {:<10}\n", "operation", "error", "tolerance", "repeatable");
    for (const operation_result &r : results.operations) {
        text += fmt::format("{:<22}  {:>10.2e}  {:>10.2e}  {:<10}  {}\n", r.name, r.error, r.tolerance,
                            r.repeatable ? "yes" : "NO", r.good() ? "ok" : "WRONG");
    }
    text += fmt::format("\n{:<24}  {}\n", "training, against keep", "gradients and weights");
    for (const training_result &r : results.trainings) {
        text += fmt::format("{:<24}  {}\n", r.name,
                            r.same ? "the same bits" : fmt::format("{} values DIFFER", r.differing));
    }
    return text + facts_text(results.facts);
}

std::string check_json(const check_results &results) {
    nlohmann::ordered_json all{{"good", results.good()},
                               {"context", facts_json(results.facts)},
                               {"operations", nlohmann::ordered_json::array()},
                               {"trainings", nlohmann::ordered_json::array()}};
    for (const operation_result &r : results.operations) {
        all["operations"].push_back({{"name", r.name},
                                     {"error", r.error},
                                     {"tolerance", r.tolerance},
                                     {"repeatable", r.repeatable},
                                     {"good", r.good()}});
    }
    for (const training_result &r : results.trainings) {
        all["trainings"].push_back({{"name", r.name}, {"same", r.same}, {"differing_values", r.differing}});
    }
    return all.dump(2) + "\n";
}

}  // namespace step
