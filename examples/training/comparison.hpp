// Modes are run one after the other, each in a runtime of its own: what of each run the table shows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "modes.hpp"
#include "run_settings.hpp"
#include "training_loop.hpp"

namespace train {

struct mode_result {
    std::string mode;
    int64_t micro_batch = 0;
    bool out_of_memory = false;
    std::string why;  // when out of memory
    double step_ms = 0;
    double tokens_per_s = 0;
    uint64_t device_peak_bytes = 0;
    uint64_t pinned_peak_bytes = 0;
    double hidden_ms = 0;
    double exposed_ms = 0;
    int64_t kept_by_necessity = 0;  // activations per step
    std::vector<double> losses;
};

// One line that is written over, and only where somebody watches.
class progress_line {
public:
    explicit progress_line(const mode_result &of);
    ~progress_line() { show(""); }
    progress_line(const progress_line &) = delete;
    progress_line &operator=(const progress_line &) = delete;

    // What run_steps is given.
    progress of_steps(int64_t steps);

private:
    void show(const std::string &text);

    const std::string run_;
    const bool on_;
};

// Runs each of the modes, and keep and offload-auto at the large micro batch if there is one. What run() throws comes
// through; `results` then has those that were finished.
using run_one = std::function<mode_result(const mode &m, int64_t micro_batch)>;
void run_modes(const run_settings &s, const run_one &run, std::vector<mode_result> &results);

// Times and losses of a run whose steps have so many tokens.
void take_times(const loop_result &run, int64_t tokens_per_step, mode_result &result);

// Runs train(); when that needs more device memory than there is, the result says so.
void run_or_note_why(const std::function<void()> &train, mode_result &result);

// The first two finished results of one micro batch whose losses are not the same bits. Empty: there are none.
std::string difference(const std::vector<mode_result> &results);

}  // namespace train
