// From a model's dimensions, how it is trained and a machine's rates to a step_model: what the evaluator, the planner
// and the simulation work on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "model/layer_graph.hpp"
#include "model/model_profile.hpp"
#include "model/step_rates.hpp"
#include "model/step_settings.hpp"
#include "schedule/plan.hpp"
#include "schedule/step_model.hpp"

namespace ebb {

struct named_bytes {
    std::string name;
    uint64_t size_bytes = 0;
};

// Part of the step's events that is one turn of a loop over layers, or what lies around such loops.
struct step_iteration {
    const char *name = "";  // embedding, layer, head, optimizer
    bool is_layer = false;
    bool backward = false;
    uint32_t layer = 0;
    uint64_t micro_batch = 0;
    uint32_t begin = 0;  // events
    uint32_t end = 0;
};

struct built_step {
    step_model model;
    plan save_set;                           // what the policy says, by tensor
    std::vector<tensor_role> role;           // by tensor
    std::vector<step_iteration> iterations;  // in their order, all events
    std::vector<named_bytes> fixed_parts;    // of model.fixed_bytes
    double gathered_layer_bytes = 0;         // weights of the largest layer, where they are sharded
    double tokens = 0;                       // per step and device
    double model_flops = 0;                  // per step and device: what throughput is counted in
    std::vector<std::string> notes;          // about the policy
};

[[nodiscard]] result<built_step> build_step(const model_profile &model, const step_settings &settings,
                                            const step_rates &rates);

}  // namespace ebb
