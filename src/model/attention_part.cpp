#include <utility>

#include "model/layer_parts.hpp"
#include "model/model_size.hpp"

namespace ebb {

namespace {

// Norm: read the input twice (the second time from cache, mostly), write once.
constexpr double k_norm_passes = 2;
constexpr double k_statistic_bytes = 4;  // per head: the logarithm of the softmax's sum
// Five matrix products in attention's backward where forward has two: the scores are computed again.
constexpr double k_attention_backward = 2.5;

double real_of(uint64_t n) {
    return static_cast<double>(n);
}

}  // namespace

attention_part::attention_part(const model_profile &model, layer_writer &to)
    : attention_(model.attention),
      to_(to),
      hidden_(real_of(model.hidden)),
      query_width_(real_of(model.attention.heads * model.attention.qk_head_dim())),
      value_width_(real_of(model.attention.heads * model.attention.v_head_dim())) {}

layer_work attention_part::attend(std::string name, double forward_share) const {
    const layer_shape &shape = to_.shape();
    const double kv_heads =
        real_of(attention_.kind == attention_profile::type::gqa ? attention_.kv_heads : attention_.heads);
    const double head_width = real_of(attention_.qk_head_dim() + attention_.v_head_dim());
    const double per_token = shape.sequence * real_of(attention_.heads) * head_width;
    const double moved = query_width_ + value_width_ + kv_heads * head_width;
    return {std::move(name), work_rate::attention, shape.tokens * per_token * forward_share,
            shape.tokens * to_.activations(moved) * forward_share, 0};
}

void attention_part::project_gqa() {
    const double kv_width = real_of(attention_.kv_heads * attention_.head_dim);
    const auto project = [&](const char *name, double width, bool turned) {
        const layer_work product = to_.gemm({name, hidden_, width});
        std::vector<layer_work> all{product};
        to_.run(product);
        if (turned) {
            all.push_back(to_.memory("rotary_embedding", 2 * width));
            to_.run(all.back());
        }
        operands_.push_back(
            to_.produce({name, to_.activations(width), all, {norm_}, tensor_role::saved, {"qkv_proj"}}));
    };
    project("query_proj", query_width_, true);
    project("key_proj", kv_width, true);
    project("value_proj", kv_width, false);
}

void attention_part::project_mla() {
    const double q_rank = real_of(attention_.q_lora_rank);
    const double kv_rank = real_of(attention_.kv_lora_rank);
    const double rope_width = real_of(attention_.qk_rope_dim);
    const double kv_width = real_of(attention_.heads * (attention_.qk_nope_dim + attention_.v_dim));

    const layer_work query_wa = to_.gemm({"query_wa_proj", hidden_, q_rank});
    to_.run(query_wa);
    query_wa_ = to_.produce({"query_wa_proj", to_.activations(q_rank), {query_wa}, {norm_}});
    const layer_work kv_wa = to_.gemm({"kv_wa_proj", hidden_, kv_rank + rope_width});
    to_.run(kv_wa);
    kv_wa_ = to_.produce({"kv_wa_proj", to_.activations(kv_rank + rope_width), {kv_wa}, {norm_}});

    // Each with the norm of its low-rank input, and the rotary embedding of the part that has one.
    const std::vector<layer_work> query{to_.memory("query_norm", k_norm_passes * q_rank),
                                        to_.gemm({"mla_q", q_rank, query_width_}),
                                        to_.memory("rotary_embedding", 2 * real_of(attention_.heads) * rope_width)};
    const std::vector<layer_work> keys_values{to_.memory("kv_norm", k_norm_passes * kv_rank),
                                              to_.gemm({"mla_kv", kv_rank, kv_width})};
    for (const layer_work &w : query) {
        to_.run(w);
    }
    operands_.push_back(to_.produce({"mla_q", to_.activations(query_width_), query, {query_wa_}}));
    for (const layer_work &w : keys_values) {
        to_.run(w);
    }
    operands_.push_back(to_.produce({"mla_kv", to_.activations(kv_width), keys_values, {kv_wa_}}));
    // The rotary part of the keys comes straight from there.
    operands_.push_back(kv_wa_);
}

uint32_t attention_part::forward(uint32_t input) {
    const layer_work norm = to_.memory("pre_attention_norm", k_norm_passes * hidden_);
    to_.run(norm);
    norm_ = to_.produce({"pre_attention_norm", to_.activations(hidden_), {norm}, {input}, tensor_role::nearly_free});
    attention_.kind == attention_profile::type::gqa ? project_gqa() : project_mla();

    // Attention makes both; its cost is split by bytes, so that it counts once when both are computed again, and
    // neither looks cheap alone.
    const double context_bytes = to_.activations(value_width_);
    const double statistic_bytes = k_statistic_bytes * real_of(attention_.heads);
    const double context_share = context_bytes / (context_bytes + statistic_bytes);
    to_.run(attend("attention", 1));
    statistics_ = to_.produce({"attention_statistics",
                               statistic_bytes,
                               {attend("attention", 1 - context_share)},
                               operands_,
                               tensor_role::companion,
                               {"context", "attention_out"}});
    context_ = to_.produce({"context",
                            context_bytes,
                            {attend("attention", context_share)},
                            operands_,
                            tensor_role::saved,
                            {"attention_out"}});
    const layer_work out = to_.gemm({"out_proj", value_width_, hidden_});
    to_.run(out);
    return to_.produce({"out_proj", to_.activations(hidden_), {out}, {context_}});
}

void attention_part::both_gradients(const layer_writer::product &p) {
    to_.run(to_.input_gradient(p));
    to_.run(to_.weight_gradient(p));
}

void attention_part::project_gqa_backward() {
    const double kv_width = real_of(attention_.kv_heads * attention_.head_dim);
    to_.run(to_.memory("rotary_embedding_gradient", 2 * (query_width_ + kv_width)));
    to_.use(norm_);
    both_gradients({"query_proj", hidden_, query_width_});
    both_gradients({"key_proj", hidden_, kv_width});
    both_gradients({"value_proj", hidden_, kv_width});
    to_.release(norm_);
}

void attention_part::project_mla_backward() {
    const double q_rank = real_of(attention_.q_lora_rank);
    const double kv_rank = real_of(attention_.kv_lora_rank);
    const double rope_width = real_of(attention_.qk_rope_dim);
    const double kv_width = real_of(attention_.heads * (attention_.qk_nope_dim + attention_.v_dim));
    to_.run(to_.memory("rotary_embedding_gradient", 2 * real_of(attention_.heads) * rope_width));
    to_.use(query_wa_);
    both_gradients({"mla_q", q_rank, query_width_});
    to_.run(to_.memory("query_norm_gradient", 4 * q_rank));
    to_.release(query_wa_);
    both_gradients({"mla_kv", kv_rank, kv_width});
    to_.run(to_.memory("kv_norm_gradient", 4 * kv_rank));
    to_.release(kv_wa_);
    to_.use(norm_);
    both_gradients({"query_wa_proj", hidden_, q_rank});
    both_gradients({"kv_wa_proj", hidden_, kv_rank + rope_width});
    to_.release(norm_);
}

void attention_part::backward() {
    const bool is_gqa = attention_.kind == attention_profile::type::gqa;
    const layer_writer::product out{"out_proj", value_width_, hidden_};
    to_.run(to_.input_gradient(out));
    to_.use(context_);
    to_.run(to_.weight_gradient(out));
    for (const uint32_t operand : operands_) {
        to_.use(operand);
    }
    to_.use(statistics_);
    to_.run(attend("attention_gradient", k_attention_backward));
    for (const uint32_t operand : operands_) {
        if (is_gqa || operand != kv_wa_) {
            to_.release(operand);
        }
    }
    to_.release(statistics_);
    to_.release(context_);
    is_gqa ? project_gqa_backward() : project_mla_backward();
}

}  // namespace ebb
