// The two halves of a layer, each with its forward and its backward. Backward is in the order in which a compiler that
// looks for overlap puts it: what needs no saved tensor first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/layer_writer.hpp"
#include "model/model_profile.hpp"

namespace ebb {

class attention_part {
public:
    attention_part(const model_profile &model, layer_writer &to);

    // Returns the output projection, which stands for the residual sum: that is one addition away.
    uint32_t forward(uint32_t input);
    void backward();

private:
    void project_gqa();
    void project_mla();
    void project_gqa_backward();
    void project_mla_backward();
    [[nodiscard]] layer_work attend(std::string name, double forward_share) const;
    // Both gradients of a product whose input is `saved`.
    void both_gradients(const layer_writer::product &p);

    const attention_profile &attention_;
    layer_writer &to_;
    double hidden_;
    double query_width_;
    double value_width_;
    uint32_t norm_ = 0;
    std::vector<uint32_t> operands_;  // of attention: queries, keys, values
    uint32_t query_wa_ = 0;           // mla
    uint32_t kv_wa_ = 0;
    uint32_t statistics_ = 0;
    uint32_t context_ = 0;
};

class mlp_part {
public:
    mlp_part(const model_profile &model, const mlp_profile &mlp, layer_writer &to);

    void forward(uint32_t input, uint32_t after_attention);
    void backward();

private:
    // One SwiGLU: the dense one, the shared experts together, or the routed experts together.
    struct swiglu {
        std::string prefix;  // of its names: "" or "moe_"
        double rows_per_token = 1;
        double width = 0;
        double matrices = 1;
        uint32_t gate = 0;
        uint32_t up = 0;
        uint32_t product = 0;
    };
    [[nodiscard]] layer_writer::product product_of(const swiglu &s, const char *name, bool down) const;
    void gate_and_up(swiglu &s, uint32_t input);
    void down(swiglu &s);
    void down_input_gradient(const swiglu &s);
    void gradients_to_input(const swiglu &s);
    void gate_and_up_weight_gradients(const swiglu &s);
    void route(uint32_t norm);
    void dense_forward();
    void moe_forward();
    void dense_backward();
    void moe_backward();

    const mlp_profile &mlp_;
    layer_writer &to_;
    double hidden_;
    double experts_per_token_;
    bool is_moe_;
    bool has_shared_;
    swiglu dense_;  // or shared experts
    swiglu routed_;
    uint32_t norm_ = 0;
    uint32_t routing_ = 0;
    uint32_t router_logits_ = 0;
    uint32_t dispatched_ = 0;
};

}  // namespace ebb
