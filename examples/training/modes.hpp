// The ways to keep activations that are compared. A mode is nothing but options of the runtime: the training
// code is the same for all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ebb/ebb.h"

namespace train {

// What a run's runtime is given, beside its mode.
struct offload_settings {
    uint64_t device_bytes = 0;
    uint64_t device_budget_bytes = 0;  // 0: see modes.cpp
    uint64_t host_bytes = 0;           // 0: Ebb's default
    uint64_t floor_bytes = 1ULL << 20U;
    uint64_t d2h_bytes_per_second = 0;
    uint64_t h2d_bytes_per_second = 0;
    bool verify = false;
};

// What a model saves.
struct saved_sizes {
    uint64_t micro_batch_bytes = 0;
    uint64_t layer_bytes = 0;    // of one micro batch
    uint64_t largest_bytes = 0;  // of one activation
};

struct mode {
    const char *name;
    const char *summary;
    void (*choose)(const offload_settings &s, const saved_sizes &saved, ebb_runtime_options &options);
};

const std::vector<mode> &all_modes();
const mode &find_mode(const std::string &name);

// The options of a run of `m` on the host device.
ebb_runtime_options options_of(const mode &m, const offload_settings &s, const saved_sizes &saved);

}  // namespace train
