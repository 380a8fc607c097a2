// What the policies are compared on: models, machines, sequence lengths and device budgets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "model/machine_profile.hpp"
#include "model/step_builder.hpp"

namespace ebb::baselines {

struct policy_workload {
    const char *name;
    const char *machine;
    const char *model;
    uint64_t micro_batch;
    uint64_t sequence;
    uint64_t shards;
    uint64_t micro_batches;
    uint64_t pipeline_stages;
    number_format format;
    // The device budget, between the least that any baseline needs (0) and what keeping everything needs (1).
    double budget_part;
};

[[nodiscard]] const std::vector<policy_workload> &policy_workloads();

// Save sets in MaxText's names, of which each baseline gets the best. What is not named is computed again where its
// layer's backward begins (layer inputs are kept), and what is nearly free where it is needed.
struct save_set_choice {
    const char *name;
    const char *policy;
};
[[nodiscard]] const std::vector<save_set_choice> &policy_save_sets();

// The machine, and the step under each save set. Tensors that are too small for anybody to move are not movable.
struct built_workload {
    machine_profile machine;
    std::vector<built_step> by_save_set;
};
[[nodiscard]] result<built_workload> build_workload(const policy_workload &w);

}  // namespace ebb::baselines
