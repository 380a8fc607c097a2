// A policy applied to a recorded step, whose tensors have names of the program's own choice.
#pragma once

#include <string>

#include "base/status.hpp"
#include "model/step_builder.hpp"

namespace ebb::cli {

// Fills in the save set and the notes. What cannot be as one word for all says is kept, or else moved, or else computed
// again; a rule by name that cannot be followed fails. `only`: the step's tensors may be placed so only, kept or
// offloaded where it saves, recomputed where it does not.
[[nodiscard]] status apply_recorded_policy(const std::string &text, bool only, built_step &step);

}  // namespace ebb::cli
