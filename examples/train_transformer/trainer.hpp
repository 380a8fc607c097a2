// One training run: the model's state in device memory, and the loop that launches forward, backward and
// optimizer while saved activations go through Ebb. It is the same for all modes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "device.hpp"
#include "kernels.hpp"
#include "saved_tensor.hpp"
#include "settings.hpp"
#include "step_log.hpp"
#include "text_data.hpp"

namespace train {

// What one layer saves for one micro batch, with the names that MaxText gives them.
struct saved_layer {
    explicit saved_layer(const model_shape &shape);

    saved_tensor input, query, key, value, context, log_sum, out_projection, gate, up;
};

class trainer {
public:
    // Called when a step was launched, with the number of steps finished and the last of their losses.
    using progress = std::function<void(int64_t finished, double loss)>;

    trainer(training_device &device, const settings &s, const text_data &text);
    ~trainer();
    trainer(const trainer &) = delete;
    trainer &operator=(const trainer &) = delete;

    // Throws call_failed or interrupted; `log` then has the steps that were finished.
    void run(const progress &report);

    [[nodiscard]] const step_log &log() const { return log_; }
    // Seconds that each timed step took.
    [[nodiscard]] std::vector<double> step_seconds() const;
    // The runtime's counters when the timed steps began and after the last.
    [[nodiscard]] const ebb_statistics &before() const { return before_; }
    [[nodiscard]] const ebb_statistics &after() const { return after_; }
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
    void begin_timing();
    void finish();
    void count(const saved_layer &layer);

    [[nodiscard]] layer_args<float> arguments_of(int64_t layer) const;
    [[nodiscard]] embed_args<float> embed_arguments(float *hidden) const;

    training_device &device_;
    const settings &settings_;
    const text_data &text_;
    const model_shape shape_;
    std::mt19937_64 random_;
    step_log log_;
    argument_arena arguments_[2];  // of the running step and of the one launched ahead

    device_array weights_, gradients_, first_moment_, second_moment_;
    device_array workspace_, derivative_, tokens_;
    device_array hidden_;  // the residual stream of the forward pass, between two layers
    std::vector<saved_layer> saved_;

    step_log::clock::time_point timing_began_;
    ebb_statistics before_{};
    ebb_statistics after_{};
    int64_t kept_by_necessity_ = 0;
};

}  // namespace train
