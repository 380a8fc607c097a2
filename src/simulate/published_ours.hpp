// Our plans on the workloads of the published tables, at the rates that were fitted to those, played through the real
// runtime on the simulated device. There is no setting per model: the one rule is written in published_ours.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "model/published.hpp"

namespace ebb {

struct published_ours {
    uint32_t table = 0;
    // The same save set and the same collectives as the best published row; else what is recomputed was free, too.
    bool comparable = true;
    double tflops = 0;
    double predicted_tflops = 0;  // by the evaluator
    double best_published_tflops = 0;
    // Device memory beyond what lives when each tensor is copied out where it is made and back where it is used. None:
    // another save set has other lifetimes.
    std::optional<double> copy_buffers_gib;
    double pipelined_rule_gib = 0;      // the same, with XLA's one iteration in flight
    double peak_gib = 0;                // of the device, without gathered weights
    std::vector<std::string> settings;  // made for this model: none
};

[[nodiscard]] result<std::vector<published_ours>> plan_published(const published_report &report);

}  // namespace ebb
