// Trains in one mode after the other, each in a runtime of its own, and keeps what tables show beside the results that
// all programs have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "comparison.hpp"
#include "gpu.hpp"
#include "memory_account.hpp"
#include "prediction.hpp"
#include "step_device.hpp"
#include "step_settings.hpp"

namespace step {

// Where runs take place: the host device, or GPUs that train together.
class run_place {
public:
    // Throws std::runtime_error where there are no such GPUs.
    explicit run_place(const step_settings &s);

    // Calls run(device, rank) for each device that trains, on a thread of its own if there are several. The first
    // failure ends them all and is thrown.
    using run_one = std::function<void(step_device &device, int64_t rank)>;
    void run(const step_settings &s, const train::mode &m, const step_shape &shape, const run_one &run);

private:
    void run_rank(const gpu_options &options, int64_t rank, const run_one &run);

    std::unique_ptr<gpu_group> gpus_;  // null: the host
};

// Of one result. What is in use beyond the known kinds is the rest: the device's own, and what allocators waste.
struct run_details {
    bytes_by_kind memory{};
    uint64_t used_bytes = 0;
    std::optional<double> predicted_ms;

    [[nodiscard]] uint64_t rest_bytes() const { return used_bytes - std::min(used_bytes, sum_of(memory)); }
};

class step_runs {
public:
    explicit step_runs(const step_settings &s) : settings_(s), place_(s) {}

    // Throws call_failed or interrupted; `results` then has the modes that were finished.
    void run_all(std::vector<train::mode_result> &results);

    // By result.
    [[nodiscard]] const std::vector<run_details> &details() const { return details_; }
    // Of the last run.
    [[nodiscard]] const device_facts &facts() const { return facts_; }

private:
    train::mode_result run_mode(const train::mode &m, int64_t micro_batch);
    void train_once(step_device &device, const step_shape &shape, train::mode_result &result);
    void train_beside(step_device &device, int64_t rank, const step_shape &shape, const std::string &mode);
    void note_device(step_device &device, train::mode_result &result);
    void predict(const std::vector<train::mode_result> &results);

    const step_settings &settings_;
    run_place place_;
    std::vector<run_details> details_;
    std::map<int64_t, recorded_run> recorded_;  // by micro batch
    device_facts facts_;
};

}  // namespace step
