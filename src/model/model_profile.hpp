// A transformer by its dimensions, read from a file (profiles/models, docs/profiles.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace ebb {

struct attention_profile {
    enum class type : uint8_t {
        gqa,  // grouped queries; as many kv_heads as heads: multi-head attention
        mla,  // multi-head latent attention: queries, and keys with values, through a low rank
    };
    type kind = type::gqa;
    uint64_t heads = 0;
    uint64_t kv_heads = 0;  // gqa
    uint64_t head_dim = 0;
    uint64_t q_lora_rank = 0;  // mla
    uint64_t kv_lora_rank = 0;
    uint64_t qk_nope_dim = 0;
    uint64_t qk_rope_dim = 0;
    uint64_t v_dim = 0;

    // Of one head, in the products with keys and with values.
    [[nodiscard]] uint64_t qk_head_dim() const noexcept {
        return kind == type::gqa ? head_dim : qk_nope_dim + qk_rope_dim;
    }
    [[nodiscard]] uint64_t v_head_dim() const noexcept { return kind == type::gqa ? head_dim : v_dim; }
};

struct mlp_profile {
    enum class type : uint8_t {
        dense,  // SwiGLU: gate, up, down
        moe,    // routed experts and shared ones, each a SwiGLU
    };
    type kind = type::dense;
    uint64_t intermediate = 0;  // of one expert
    uint64_t experts = 0;       // moe
    uint64_t experts_per_token = 0;
    uint64_t shared_experts = 0;
};

struct model_profile {
    struct layer_group {
        uint64_t count = 0;
        mlp_profile mlp;
    };

    std::string name;
    std::string title;
    std::string source;
    uint64_t hidden = 0;
    uint64_t vocabulary = 0;
    bool tied_embeddings = false;  // the head is the embedding's matrix
    attention_profile attention;
    std::vector<layer_group> layers;  // from the first to the last

    [[nodiscard]] uint32_t layer_count() const noexcept;
    [[nodiscard]] const mlp_profile &mlp_of(uint32_t layer) const noexcept;
};

// `called` is how messages name the text: a file's path.
[[nodiscard]] result<model_profile> parse_model_profile(std::string_view text, std::string called);

}  // namespace ebb
