// The sizes of the model whose steps are measured, and where its weights lie in one flat array.
#pragma once

#include <cstdint>

#include "model_shape.hpp"

namespace step {

// With experts the SwiGLU part of a layer is theirs: each token goes to top_k of them, and an expert takes at most
// capacity_factor times its even share.
struct step_shape : train::model_shape {
    int64_t experts = 0;  // 0: dense
    int64_t top_k = 0;
    double capacity_factor = 0;

    [[nodiscard]] bool has_experts() const { return experts != 0; }
    [[nodiscard]] int64_t slots() const { return tokens() * top_k; }
    [[nodiscard]] int64_t expert_capacity() const;
    // The most rows that the SwiGLU part may have: a routing's own are fewer.
    [[nodiscard]] int64_t most_ffn_rows() const;
};

// What a product of [width, ffn] weights takes; a layer with experts has one for each.
[[nodiscard]] inline int64_t wide_elements(const step_shape &shape) {
    return shape.width * shape.ffn;
}

// Offsets in elements, each a multiple of k_weight_align. A weight is [in, out], row-major; a norm is [width].
struct layer_offsets {
    int64_t begin = 0;  // of the layer; what follows lies in [begin, end)
    int64_t attention_norm = 0, query = 0, key = 0, value = 0, out = 0;
    int64_t mlp_norm = 0;
    int64_t router = 0;                  // [width, experts]
    int64_t gate = 0, up = 0, down = 0;  // of the first expert; those of the others follow
    int64_t end = 0;
};

struct model_offsets {
    int64_t token_embedding = 0;     // [vocabulary, width]
    int64_t position_embedding = 0;  // [sequence, width]
    int64_t final_norm = 0;
    int64_t head = 0;  // [width, vocabulary]
    int64_t layers = 0;
    int64_t end = 0;
};

constexpr int64_t k_weight_align = 256;

[[nodiscard]] model_offsets offsets_of(const step_shape &shape);
[[nodiscard]] layer_offsets offsets_of_layer(const step_shape &shape, int64_t layer);

}  // namespace step
