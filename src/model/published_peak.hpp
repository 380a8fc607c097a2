// Device memory at its peak as a sum of named parts: one recipe for both published workloads, with nothing tuned to a
// peak. It adds up what lives at the end of forward, when all layer inputs are there, and what the backward of one
// layer needs, as if both were there at once.
#pragma once

#include <cstdint>
#include <vector>

#include "model/step_builder.hpp"
#include "model/xla_copies.hpp"

namespace ebb {

struct published_peak {
    std::vector<named_bytes> parts;
    double low_bytes = 0;   // the sum
    double high_bytes = 0;  // and one layer of gathered weights, where collectives overlap with compute
};

// Of a step built with no gathered layers.
[[nodiscard]] published_peak peak_of(const built_step &step, const xla_step &time, bool collectives_overlap);

}  // namespace ebb
