// How a model is trained: what a step is, over how many devices, in which formats, and what is saved.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.hpp"
#include "model/machine_profile.hpp"
#include "model/model_profile.hpp"

namespace ebb {

// Where collectives run. No published measurement tells them apart, so it is a choice that is declared.
enum class collective_overlap : uint8_t {
    exposed,            // on the critical path: compute waits for each
    own_iteration,      // beside the layer that they belong to
    across_iterations,  // beside the neighbouring layer: weights come one layer early, gradients leave one late
};

struct step_settings {
    uint64_t micro_batch = 1;  // sequences
    uint64_t sequence = 4096;  // tokens
    uint64_t micro_batches = 1;

    uint64_t shards = 1;         // devices that share parameters, gradients and optimizer state (FSDP)
    uint64_t expert_shards = 1;  // devices that share the routed experts, whose tokens travel
    uint64_t pipeline_stages = 1;
    uint64_t pipeline_chunks = 1;  // parts of the model per device (interleaved 1F1B)
    uint64_t pipeline_stage = 0;   // which one the step is of

    number_format gemm_format = number_format::bf16;
    number_format attention_format = number_format::bf16;
    double activation_bytes = 2;
    double gather_bytes = 0;       // of a gathered parameter; 0: those of gemm_format
    double gradient_bytes = 2;     // of a gradient that is scattered
    double state_bytes = 12;       // of a parameter and its optimizer state: fp32, with two moments
    uint64_t gathered_layers = 1;  // whose weights are there at once, where they are sharded

    // What happens to which tensor, as MaxText names it: schedule/policy.hpp. What no rule is for is computed again,
    // layer inputs apart, which are kept. Empty: so is everything.
    std::string policy;
    // The step's tensors may be placed as the policy says only: kept or offloaded where it saves, recomputed where it
    // does not. Else all that is possible is, and the policy is one plan of many.
    bool fixed_save_set = false;

    // A layer's recompute comes before anything else of its backward, as in an eager framework. A compiler puts the
    // last product's input gradient first: it needs nothing that was saved, and reloads hide behind it.
    bool recompute_first = false;

    collective_overlap gathers = collective_overlap::across_iterations;
    // Experts' all-to-all. own_iteration: beside shared experts and weight gradients, as far as those go.
    // across_iterations: beside all that follows in its iteration, as if another micro-batch were computed meanwhile.
    collective_overlap all_to_all = collective_overlap::exposed;

    [[nodiscard]] double tokens() const noexcept {
        return static_cast<double>(micro_batch) * static_cast<double>(sequence);
    }
    [[nodiscard]] double gathered_parameter_bytes() const noexcept {
        return gather_bytes > 0 ? gather_bytes : number_format_bytes(gemm_format);
    }
};

// Names what does not fit together, with the value and what is allowed.
[[nodiscard]] status check_settings(const step_settings &settings, const model_profile &model);

}  // namespace ebb
