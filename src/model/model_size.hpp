// How large a model is, and how much work a token is.
#pragma once

#include <cstdint>

#include "model/model_profile.hpp"

namespace ebb {

// Of one layer. Routed experts apart, since they may be spread over other devices than the rest.
struct layer_parameters {
    double attention = 0;
    double dense = 0;           // a dense MLP, or shared experts and router
    double routed_experts = 0;  // all of them
    double routed_active = 0;   // those that one token goes through

    [[nodiscard]] double total() const noexcept { return attention + dense + routed_experts; }
    [[nodiscard]] double active() const noexcept { return attention + dense + routed_active; }
};

[[nodiscard]] layer_parameters parameters_of_layer(const model_profile &model, const mlp_profile &mlp) noexcept;
// Of the embedding, and of the head too where it has a matrix of its own.
[[nodiscard]] double embedding_parameters(const model_profile &model) noexcept;
[[nodiscard]] double head_parameters(const model_profile &model) noexcept;
[[nodiscard]] double parameters_of_model(const model_profile &model) noexcept;
[[nodiscard]] double active_parameters(const model_profile &model) noexcept;

// Forward, per token: two for each parameter that a token meets, and causal attention over `sequence` tokens.
[[nodiscard]] double matrix_flops_per_token(const model_profile &model, const mlp_profile &mlp) noexcept;
[[nodiscard]] double attention_flops_per_token(const model_profile &model, uint64_t sequence) noexcept;

// What throughput is counted in ("model FLOPs"): six per active parameter, embedding included, and three times
// attention; recompute does not count.
[[nodiscard]] double model_flops_per_token(const model_profile &model, uint64_t sequence) noexcept;

}  // namespace ebb
