// The ways to keep activations that are compared. A mode is nothing but options of the runtime: the training
// code is the same for all.
#pragma once

#include <string>
#include <vector>

#include "ebb/ebb.h"
#include "settings.hpp"

namespace train {

struct mode {
    const char *name;
    const char *summary;
    void (*choose)(const settings &s, ebb_runtime_options &options);
};

const std::vector<mode> &all_modes();
const mode &find_mode(const std::string &name);

// The options of a run of `m`.
ebb_runtime_options options_of(const mode &m, const settings &s);

}  // namespace train
