// Trains in one mode after the other, each in a runtime of its own, and keeps what tables show beside the results that
// all programs have.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "comparison.hpp"
#include "memory_account.hpp"
#include "prediction.hpp"
#include "step_device.hpp"
#include "step_settings.hpp"

namespace step {

// Of one result. What is in use beyond the known kinds is the rest: the device's own, and what allocators waste.
struct run_details {
    bytes_by_kind memory{};
    uint64_t used_bytes = 0;
    std::optional<double> predicted_ms;

    [[nodiscard]] uint64_t rest_bytes() const { return used_bytes - std::min(used_bytes, sum_of(memory)); }
};

class step_runs {
public:
    explicit step_runs(const step_settings &s) : settings_(s) {}

    // Throws call_failed or interrupted; `results` then has the modes that were finished.
    void run_all(std::vector<train::mode_result> &results);

    // By result.
    [[nodiscard]] const std::vector<run_details> &details() const { return details_; }

private:
    train::mode_result run_mode(const train::mode &m, int64_t micro_batch);
    void train_once(step_device &device, const step_shape &shape, train::mode_result &result, run_details &details);
    void predict(const std::vector<train::mode_result> &results);

    const step_settings &settings_;
    std::vector<run_details> details_;
    std::map<int64_t, recorded_run> recorded_;  // by micro batch
};

[[nodiscard]] std::unique_ptr<step_device> make_step_device(const step_settings &s, const train::mode &m,
                                                            const step_shape &shape);

}  // namespace step
