// One training run: the model's state in device memory, and the loop that launches forward, backward and optimizer
// while saved activations go through Ebb. It is the same for all modes and devices.
#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "layer_math.hpp"
#include "routing.hpp"
#include "saved_tensor.hpp"
#include "step_device.hpp"
#include "step_settings.hpp"
#include "training_loop.hpp"

namespace step {

class step_trainer {
public:
    // `rank` is which of the devices that train together it is: each has data of its own.
    step_trainer(step_device &device, const step_settings &s, const step_shape &shape, int64_t rank);
    ~step_trainer();
    step_trainer(const step_trainer &) = delete;
    step_trainer &operator=(const step_trainer &) = delete;

    // Throws call_failed or interrupted. at_step is called as each step begins.
    train::loop_result run(const train::loop_settings &steps, const std::function<void(int64_t step)> &at_step,
                           const train::progress &report);

    // Activations that stayed on the device because they could not be offloaded.
    [[nodiscard]] int64_t kept_by_necessity() const { return kept_by_necessity_; }
    // Gradients and the optimizer's weights.
    [[nodiscard]] std::vector<float> state();

private:
    using id_set = std::bitset<k_saved_count>;
    using saved_layer = std::vector<train::saved_tensor>;

    void fill_weights();
    void make_tokens();
    void launch_step(int64_t step);
    [[nodiscard]] const uint8_t *next_tokens();
    void forward(int64_t step, int64_t micro_batch, const uint8_t *tokens);
    void forward_layer(int64_t layer, int64_t micro_batch);
    void save(size_t id, const std::shared_ptr<void> &array, int64_t micro_batch);
    void backward(int64_t micro_batch);
    void backward_layer(int64_t layer, bool reduce);
    void finish_and_reduce(int64_t layer);
    void finish(std::initializer_list<size_t> ids);
    void fetch(std::initializer_list<size_t> ids);
    void add_missing(size_t id, id_set &missing) const;
    void compute(const id_set &missing);
    void prepare_to_compute(size_t id);
    void optimize(int64_t step);
    [[nodiscard]] saved_layer new_saved_layer(const device_routing *route) const;

    step_device &device_;
    train::training_device &training_;
    step_math &math_;
    const step_settings &settings_;
    const step_shape shape_;
    std::mt19937_64 random_;

    int64_t parameter_count_;
    std::shared_ptr<void> weights_, gradients_, first_moment_, second_moment_;
    std::shared_ptr<void> master_;  // the optimizer's weights, where element and real differ
    std::shared_ptr<void> tokens_;
    layer_math layer_math_;
    routing_tables routing_;

    std::shared_ptr<void> hidden_;  // the residual stream of the forward pass, between two layers
    std::vector<saved_layer> saved_;
    std::vector<const device_routing *> routes_;  // of the same layers
    layer_arrays now_;                            // the layer at work
    train::saved_tensor span_;
    int64_t kept_by_necessity_ = 0;
};

}  // namespace step
