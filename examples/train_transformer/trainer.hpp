// One training run: the model's state in device memory, and the loop that launches forward, backward and
// optimizer while saved activations go through Ebb. It is the same for all modes.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "kernels.hpp"
#include "saved_tensor.hpp"
#include "settings.hpp"
#include "text_data.hpp"
#include "training_device.hpp"
#include "training_loop.hpp"

namespace train {

using device_array = std::shared_ptr<float>;

// What one layer saves for one micro batch, with the names that MaxText gives them.
struct saved_layer {
    explicit saved_layer(const model_shape &shape);

    saved_tensor input, query, key, value, context, log_sum, out_projection, gate, up;
};

class trainer {
public:
    trainer(host_training_device &device, const settings &s, const text_data &text);
    ~trainer();
    trainer(const trainer &) = delete;
    trainer &operator=(const trainer &) = delete;

    // Throws call_failed or interrupted.
    loop_result run(const progress &report);

    // Activations that stayed on the device because they could not be offloaded.
    [[nodiscard]] int64_t kept_by_necessity() const { return kept_by_necessity_; }

private:
    void launch_step(int64_t step);
    void load_tokens();
    void forward(int64_t micro_batch);
    device_array forward_layer(int64_t layer, const device_array &input, int64_t micro_batch);
    device_array forward_attention(layer_args<float> &args, saved_layer &saved, int64_t micro_batch);
    void backward();
    void backward_layer(int64_t layer);
    void fetch(layer_args<float> &args, saved_layer &saved, size_t first, size_t last);
    void compute_missing(layer_args<float> &args, saved_layer &saved);
    void launch_missing(const layer_args<float> &args, const layer_tensors<float> &missing);
    void count(const saved_layer &layer);

    [[nodiscard]] layer_args<float> arguments_of(int64_t layer) const;
    [[nodiscard]] embed_args<float> embed_arguments(float *hidden) const;

    host_training_device &device_;
    const settings &settings_;
    const text_data &text_;
    const model_shape shape_;
    std::mt19937_64 random_;

    device_array weights_, gradients_, first_moment_, second_moment_;
    device_array workspace_, derivative_, tokens_;
    device_array hidden_;  // the residual stream of the forward pass, between two layers
    std::vector<saved_layer> saved_;

    int64_t kept_by_necessity_ = 0;
};

}  // namespace train
