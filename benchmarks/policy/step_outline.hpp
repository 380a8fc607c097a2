// What a rule may know of a step before it runs: its layers and their modules, which tensors the save set moves, and
// in which order they are needed.
#pragma once

#include <cstdint>
#include <vector>

#include "model/step_builder.hpp"

namespace ebb::baselines {

// A layer in one micro-batch.
struct saved_layer {
    uint32_t pass = 0;                 // the layers of a micro-batch that run one after the other
    uint32_t position = 0;             // in its pass
    std::vector<uint32_t> moved;       // tensors, in the order of their production
    std::vector<uint32_t> first_used;  // the same, in the order of their first use
};

class step_outline {
public:
    explicit step_outline(const built_step &step);

    [[nodiscard]] const std::vector<saved_layer> &layers() const noexcept { return layers_; }  // order of forward
    [[nodiscard]] uint32_t passes() const noexcept { return static_cast<uint32_t>(pass_start_.size()); }
    [[nodiscard]] uint32_t layers_of_pass(uint32_t pass) const noexcept { return pass_size_[pass]; }
    [[nodiscard]] uint32_t longest_pass() const noexcept;
    [[nodiscard]] uint32_t layer_at(uint32_t pass, uint32_t position) const noexcept {
        return pass_start_[pass] + position;
    }
    [[nodiscard]] uint32_t layer_of_iteration(uint32_t iteration) const noexcept { return of_iteration_[iteration]; }
    [[nodiscard]] uint32_t layer_of_tensor(uint32_t tensor) const noexcept { return of_tensor_[tensor]; }
    [[nodiscard]] bool is_moved(uint32_t tensor) const noexcept { return module_of_[tensor] != k_no_index; }

    // Halves of layers, attention and MLP: moved tensors, in the order of their first use. In the order of forward.
    [[nodiscard]] const std::vector<std::vector<uint32_t>> &modules() const noexcept { return modules_; }
    [[nodiscard]] uint32_t module_of(uint32_t tensor) const noexcept { return module_of_[tensor]; }
    // Its tensor that is produced last.
    [[nodiscard]] uint32_t last_of_module(uint32_t module) const noexcept { return last_of_module_[module]; }

    // What is computed again before an event, in its order.
    [[nodiscard]] const std::vector<uint32_t> &recomputed_at(uint32_t event) const noexcept {
        return recomputed_at_[event];
    }
    // The tensor whose memory is taken before an event: where the work begins that produces it.
    [[nodiscard]] uint32_t allocated_at(uint32_t event) const noexcept { return allocated_at_[event]; }

private:
    void list_layers(const built_step &step);
    void list_tensors(const built_step &step);
    void place_recomputes(const built_step &step);
    void order_uses(const built_step &step);
    void sort_by_use(std::vector<uint32_t> &tensors) const;

    std::vector<saved_layer> layers_;
    std::vector<uint32_t> pass_start_, pass_size_;
    std::vector<uint32_t> of_iteration_, of_tensor_;
    std::vector<std::vector<uint32_t>> modules_;
    std::vector<uint32_t> module_of_, last_of_module_;
    std::vector<std::vector<uint32_t>> recomputed_at_;
    std::vector<uint32_t> allocated_at_;
    std::vector<uint32_t> use_order_;  // by tensor
};

}  // namespace ebb::baselines
