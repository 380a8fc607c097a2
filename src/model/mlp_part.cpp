#include "model/layer_parts.hpp"

namespace ebb {

namespace {

constexpr double k_routing_bytes = 8;  // per expert of a token: its number and its weight
constexpr double k_logit_bytes = 4;    // the router computes in fp32

}  // namespace

mlp_part::mlp_part(const model_profile &model, const mlp_profile &mlp, layer_writer &to)
    : mlp_(mlp),
      to_(to),
      hidden_(static_cast<double>(model.hidden)),
      experts_per_token_(static_cast<double>(mlp.experts_per_token)),
      is_moe_(mlp.kind == mlp_profile::type::moe),
      has_shared_(mlp.shared_experts != 0) {
    const auto width = static_cast<double>(mlp.intermediate);
    dense_.width = is_moe_ ? width * static_cast<double>(mlp.shared_experts) : width;
    routed_.prefix = "moe_";
    routed_.rows_per_token = experts_per_token_;
    routed_.width = width;
    routed_.matrices = static_cast<double>(mlp.experts) / to.shape().expert_shards;
}

layer_writer::product mlp_part::product_of(const swiglu &s, const char *name, bool down) const {
    return {s.prefix + name, down ? s.width : hidden_, down ? hidden_ : s.width, s.rows_per_token, s.matrices};
}

void mlp_part::gate_and_up(swiglu &s, uint32_t input) {
    const double bytes = to_.activations(s.width * s.rows_per_token);
    const auto project = [&](const char *name) {
        const layer_work product = to_.gemm(product_of(s, name, false));
        to_.run(product);
        return to_.produce({s.prefix + name, bytes, {product}, {input}, tensor_role::saved, {s.prefix + "mlpwi"}});
    };
    s.gate = project("mlpwi_0");
    s.up = project("mlpwi_1");
}

void mlp_part::down(swiglu &s) {
    const double width = s.width * s.rows_per_token;
    const layer_work swish = to_.memory(s.prefix + "mlp_product", 3 * width);
    to_.run(swish);
    s.product = to_.produce(
        {s.prefix + "mlp_product", to_.activations(width), {swish}, {s.gate, s.up}, tensor_role::nearly_free});
    to_.run(to_.gemm(product_of(s, "mlpwo", true)));
}

void mlp_part::route(uint32_t norm) {
    const auto experts = static_cast<double>(mlp_.experts);
    const layer_work product = to_.gemm({"router", hidden_, experts});
    to_.run(product);
    router_logits_ =
        to_.produce({"router_logits", k_logit_bytes * experts, {product}, {norm}, tensor_role::nearly_free});
    to_.run(to_.memory("router_choice", 2 * experts));
    routing_ = to_.produce({"moe_routing", k_routing_bytes * experts_per_token_, {}, {}, tensor_role::always_kept});
}

void mlp_part::dense_forward() {
    gate_and_up(dense_, norm_);
    down(dense_);
}

// The shared experts compute while tokens travel.
void mlp_part::moe_forward() {
    const double copies = experts_per_token_ * hidden_;
    route(norm_);
    layer_work dispatch = to_.memory("moe_dispatch", hidden_ + copies);
    to_.run(dispatch);
    to_.exchange_begin("moe_dispatch_exchange", copies);
    if (has_shared_) {
        gate_and_up(dense_, norm_);
    }
    to_.exchange_end();
    dispatch.exchange_bytes = to_.exchanged_bytes(copies);
    dispatched_ = to_.produce(
        {"moe_dispatched", to_.activations(copies), {dispatch}, {norm_, routing_}, tensor_role::nearly_free});
    gate_and_up(routed_, dispatched_);
    down(routed_);
    to_.exchange_begin("moe_combine_exchange", copies);
    if (has_shared_) {
        down(dense_);
    }
    to_.exchange_end();
    to_.run(to_.memory("moe_combine", copies + 2 * hidden_));
}

void mlp_part::forward(uint32_t input, uint32_t after_attention) {
    const layer_work norm = to_.memory("post_attention_norm", 4 * hidden_);  // with the residual sum before it
    to_.run(norm);
    norm_ = to_.produce(
        {"post_attention_norm", to_.activations(hidden_), {norm}, {input, after_attention}, tensor_role::nearly_free});
    is_moe_ ? moe_forward() : dense_forward();
    to_.run(to_.memory("mlp_residual", 3 * hidden_));
}

void mlp_part::down_input_gradient(const swiglu &s) {
    to_.run(to_.input_gradient(product_of(s, "mlpwo", true)));
}

// From the product's gradient to the input's.
void mlp_part::gradients_to_input(const swiglu &s) {
    to_.use(s.gate);
    to_.use(s.up);
    to_.use(s.product);
    to_.run(to_.weight_gradient(product_of(s, "mlpwo", true)));
    to_.release(s.product);
    to_.run(to_.memory(s.prefix + "mlp_product_gradient", 5 * s.width * s.rows_per_token));
    to_.release(s.gate);
    to_.release(s.up);
    to_.run(to_.input_gradient(product_of(s, "mlpwi_0", false)));
    to_.run(to_.input_gradient(product_of(s, "mlpwi_1", false)));
}

void mlp_part::gate_and_up_weight_gradients(const swiglu &s) {
    to_.run(to_.weight_gradient(product_of(s, "mlpwi_0", false)));
    to_.run(to_.weight_gradient(product_of(s, "mlpwi_1", false)));
}

void mlp_part::dense_backward() {
    down_input_gradient(dense_);
    to_.backward_begins_late();
    gradients_to_input(dense_);
    to_.use(norm_);
    gate_and_up_weight_gradients(dense_);
    to_.release(norm_);
}

void mlp_part::moe_backward() {
    const double copies = experts_per_token_ * hidden_;
    const layer_writer::product router{"router", hidden_, static_cast<double>(mlp_.experts)};
    to_.use(routing_);
    to_.run(to_.memory("moe_combine_gradient", hidden_ + copies));
    to_.exchange_begin("moe_combine_gradient_exchange", copies);
    if (has_shared_) {
        down_input_gradient(dense_);
    }
    to_.exchange_end();
    down_input_gradient(routed_);
    to_.backward_begins_late();
    gradients_to_input(routed_);
    to_.exchange_begin("moe_dispatch_gradient_exchange", copies);
    to_.use(dispatched_);
    gate_and_up_weight_gradients(routed_);
    to_.release(dispatched_);
    to_.exchange_end();
    to_.run(to_.memory("moe_dispatch_gradient", copies + hidden_));
    if (has_shared_) {
        gradients_to_input(dense_);
    }
    to_.use(norm_);
    if (has_shared_) {
        gate_and_up_weight_gradients(dense_);
    }
    to_.use(router_logits_);
    to_.run(to_.memory("router_choice_gradient", 2 * static_cast<double>(mlp_.experts)));
    to_.release(router_logits_);
    to_.run(to_.input_gradient(router));
    to_.run(to_.weight_gradient(router));
    to_.release(routing_);
    to_.release(norm_);
}

void mlp_part::backward() {
    is_moe_ ? moe_backward() : dense_backward();
}

}  // namespace ebb
