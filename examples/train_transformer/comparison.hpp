// Runs modes one after the other, each in a runtime of its own, and keeps what the table shows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "settings.hpp"
#include "text_data.hpp"

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

// Throws call_failed or interrupted; `results` then has the modes that were finished.
void run_all(const settings &s, const text_data &text, std::vector<mode_result> &results);

// The first two finished results of one micro batch whose losses are not the same bits. Empty: there are none.
std::string difference(const std::vector<mode_result> &results);

}  // namespace train
