// The parts of a transformer layer, forward and backward, as operations; and the ends of the model. What is needed only
// within a part lies in scratch memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "routing.hpp"
#include "step_device.hpp"
#include "step_shape.hpp"

namespace step {

// What a layer saves for its backward pass, in the order in which it is produced.
enum saved_id : size_t {
    k_input,           // [tokens, width]
    k_query,           // [tokens, width]
    k_key,             // [tokens, width]
    k_value,           // [tokens, width]
    k_context,         // [tokens, width]: attention before the output projection
    k_log_sum,         // real, [sequences, heads, length]
    k_out_projection,  // [tokens, width]: what attention adds to the residual
    k_gate,            // [rows of the SwiGLU part, ffn], before the activation function
    k_up,              // the same
    k_saved_count
};

using saved_arrays = std::array<void *, k_saved_count>;

// The model's parameters on the device, all of one layout (step_shape.hpp).
struct parameters {
    element *weights = nullptr;
    real *gradients = nullptr;
};

struct layer_arrays {
    layer_offsets at;
    const device_routing *route = nullptr;  // of a layer with experts
    saved_arrays saved{};
    element *output = nullptr;  // forward: the next layer's input; null: not wanted
};

class layer_math {
public:
    layer_math(step_device &device, const step_shape &shape, const parameters &of);

    // Forward, in this order. Saved arrays that are null are not wanted, where a part writes them.
    void project(const layer_arrays &a);
    void attend(const layer_arrays &a);
    void project_out(const layer_arrays &a);
    void mlp(const layer_arrays &a);

    // Backward, in this order: derivative() turns from that by the layer's output into that by its input. The first
    // reads input, out_projection, gate and up, the second the others and input.
    void mlp_backward(const layer_arrays &a);
    void attention_backward(const layer_arrays &a);

    void embed(const uint8_t *tokens, element *output);
    void embed_backward(const uint8_t *tokens);
    // Final norm, head and loss, forward and backward: writes derivative().
    void head(const uint8_t *tokens, const element *hidden, double scale, double *loss);

    [[nodiscard]] batch_shape batch() const { return {shape_.micro_batch, shape_.sequence}; }

private:
    void into(int64_t offset, void *output, int64_t columns);
    void experts_forward(const layer_arrays &a);
    void experts_output(const layer_arrays &a);
    void route(const layer_arrays &a);
    void dense_backward(const layer_arrays &a);
    void experts_backward(const layer_arrays &a);
    void experts_down_backward(const layer_arrays &a);
    void experts_up_backward(const layer_arrays &a);
    void router_backward(const layer_arrays &a);
    [[nodiscard]] attention_call attention_of(const layer_arrays &a) const;

    [[nodiscard]] element *weight(int64_t offset) const { return element_at(of_.weights, offset); }
    [[nodiscard]] real *gradient(int64_t offset) const {
        return static_cast<std::byte *>(of_.gradients) + static_cast<uint64_t>(offset) * math_.real_bytes();
    }
    [[nodiscard]] element *element_at(element *array, int64_t offset) const {
        return static_cast<std::byte *>(array) + static_cast<uint64_t>(offset) * math_.element_bytes();
    }
    // One expert's rows of an array with so many columns.
    [[nodiscard]] element *rows_of(const layer_arrays &a, int64_t expert, element *array, int64_t columns) const {
        return element_at(array, a.route->first_row[static_cast<size_t>(expert)] * columns);
    }

    // Calls f(expert, rows, offset of the expert's weights) for experts that have rows.
    template <class function>
    void for_each_expert(const layer_arrays &a, const function &f) const {
        for (int64_t expert = 0; expert < shape_.experts; ++expert) {
            const int64_t *const first = a.route->first_row.data() + expert;
            if (first[1] > first[0]) {
                f(expert, first[1] - first[0], expert * wide_elements(shape_));
            }
        }
    }

    step_math &math_;
    const step_shape shape_;
    const parameters of_;

    // Scratch. Two names for one array: it serves twice.
    std::shared_ptr<void> memory_;
    element *derivative_, *normed_, *d_normed_;
    element *residual_, *d_context_;  // one array
    element *d_query_, *d_key_, *d_value_;
    element *activated_, *d_activated_;       // [rows, ffn]
    element *expert_input_, *expert_output_;  // [rows, width]
    element *router_logits_, *logits_;        // [tokens, experts], [tokens, vocabulary]
    real *gates_, *d_gates_;                  // [tokens, top_k]
};

}  // namespace step
