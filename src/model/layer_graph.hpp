// One layer of a model as operators and saved tensors, in the order in which they run and are needed: what the layer
// is, for so many tokens, without the times that a machine takes for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model_profile.hpp"

namespace ebb {

// What an operator's time is taken from, besides HBM.
enum class work_rate : uint8_t { gemm, attention, memory };

struct layer_work {
    std::string name;
    work_rate rate = work_rate::memory;
    double flops = 0;
    double hbm_bytes = 0;
    double exchange_bytes = 0;  // sent to other devices' experts, where that is part of computing it again
};

enum class tensor_role : uint8_t {
    saved,        // worth a decision: what published byte totals count
    companion,    // small, and made together with one of those: goes its way, and is not counted
    nearly_free,  // computed again out of others in no time: norms, the SwiGLU product; where it is used
    always_kept,  // small, and everything would have to be computed again without it: which expert, with what weight
};

struct layer_tensor {
    std::string name;
    std::vector<std::string> aliases;  // other names under which a policy may mean it
    uint64_t size_bytes = 0;
    tensor_role role = tensor_role::saved;
    bool can_recompute = true;
    std::vector<layer_work> recompute;
    std::vector<uint32_t> from;
};

enum class layer_step_kind : uint8_t {
    work,
    produce,
    use,
    release,
    backward_begins,  // what is recomputed is recomputed here
    exchange_begin,   // all-to-all between the devices that hold experts
    exchange_end,
};

struct layer_step {
    layer_step_kind what = layer_step_kind::work;
    layer_work work;  // exchange_begin: its bytes
    uint32_t tensor = 0;
};

struct layer_graph {
    std::vector<layer_tensor> tensors;
    std::vector<layer_step> forward;
    std::vector<layer_step> backward;

    // By role, of all tensors.
    [[nodiscard]] uint64_t bytes_of(tensor_role role) const noexcept;
    // Of forward work at that rate.
    [[nodiscard]] double forward_flops(work_rate rate) const noexcept;
};

struct layer_shape {
    double tokens = 0;
    double sequence = 0;  // tokens that attend to each other
    double activation_bytes = 2;
    double weight_bytes = 2;       // of a parameter, as matrix products read it
    double gradient_bytes = 2;     // of a parameter, as they write its gradient
    double expert_shards = 1;      // devices over which the routed experts are spread
    bool recompute_first = false;  // before anything else of a layer's backward
};

[[nodiscard]] layer_graph make_layer_graph(const model_profile &model, const mlp_profile &mlp,
                                           const layer_shape &shape);

}  // namespace ebb
