#include "model/model_size.hpp"

namespace ebb {

namespace {

double real(uint64_t n) {
    return static_cast<double>(n);
}

double attention_parameters(const model_profile &model) {
    const attention_profile &a = model.attention;
    const double hidden = real(model.hidden);
    if (a.kind == attention_profile::type::gqa) {
        return hidden * real(a.head_dim) * (2 * real(a.heads) + 2 * real(a.kv_heads));
    }
    const double query = real(a.q_lora_rank) * (hidden + real(a.heads * a.qk_head_dim()));
    const double keys_values = hidden * real(a.kv_lora_rank + a.qk_rope_dim) +
                               real(a.kv_lora_rank) * real(a.heads * (a.qk_nope_dim + a.v_dim));
    return query + keys_values + real(a.heads * a.v_dim) * hidden;
}

}  // namespace

layer_parameters parameters_of_layer(const model_profile &model, const mlp_profile &mlp) noexcept {
    constexpr double k_norms = 2;
    const double hidden = real(model.hidden);
    const double one_mlp = 3 * hidden * real(mlp.intermediate);
    layer_parameters p;
    p.attention = attention_parameters(model) + k_norms * hidden;
    if (mlp.kind == mlp_profile::type::dense) {
        p.dense = one_mlp;
    } else {
        p.dense = real(mlp.shared_experts) * one_mlp + hidden * real(mlp.experts);
        p.routed_experts = real(mlp.experts) * one_mlp;
        p.routed_active = real(mlp.experts_per_token) * one_mlp;
    }
    return p;
}

double embedding_parameters(const model_profile &model) noexcept {
    return real(model.hidden) * real(model.vocabulary);
}

double head_parameters(const model_profile &model) noexcept {
    return model.tied_embeddings ? 0 : embedding_parameters(model);
}

double parameters_of_model(const model_profile &model) noexcept {
    double sum = embedding_parameters(model) + head_parameters(model);
    for (const model_profile::layer_group &group : model.layers) {
        sum += real(group.count) * parameters_of_layer(model, group.mlp).total();
    }
    return sum;
}

double active_parameters(const model_profile &model) noexcept {
    double sum = embedding_parameters(model) + head_parameters(model);
    for (const model_profile::layer_group &group : model.layers) {
        sum += real(group.count) * parameters_of_layer(model, group.mlp).active();
    }
    return sum;
}

double matrix_flops_per_token(const model_profile &model, const mlp_profile &mlp) noexcept {
    return 2 * parameters_of_layer(model, mlp).active();
}

double attention_flops_per_token(const model_profile &model, uint64_t sequence) noexcept {
    const attention_profile &a = model.attention;
    // A multiplication and an addition each; under a causal mask a token meets half of the sequence on average.
    constexpr double k_causal = 0.5;
    return 2 * k_causal * real(sequence) * real(a.heads) * real(a.qk_head_dim() + a.v_head_dim());
}

double model_flops_per_token(const model_profile &model, uint64_t sequence) noexcept {
    return 6 * active_parameters(model) + 3 * real(model.layer_count()) * attention_flops_per_token(model, sequence);
}

}  // namespace ebb
