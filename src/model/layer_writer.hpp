// Writes a layer_graph operator by operator. Widths are numbers per token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/layer_graph.hpp"

namespace ebb {

class layer_writer {
public:
    explicit layer_writer(const layer_shape &shape) : shape_(shape) {}

    // Operators, to be run or to be listed as a tensor's recompute.
    struct product {
        std::string name;
        double in = 0;
        double out = 0;
        double rows_per_token = 1;  // experts: as many as a token goes through
        double matrices = 1;        // experts whose weights are here
    };
    [[nodiscard]] layer_work gemm(const product &p) const;
    // The input's gradient: as much again. The weight's: as much, and the gradient is written.
    [[nodiscard]] layer_work input_gradient(const product &p) const;
    [[nodiscard]] layer_work weight_gradient(const product &p) const;
    // Reads and writes so many activations per token.
    [[nodiscard]] layer_work memory(std::string name, double numbers_per_token) const;

    struct saved {
        std::string name;
        double bytes_per_token = 0;
        std::vector<layer_work> recompute{};
        std::vector<uint32_t> from{};
        tensor_role role = tensor_role::saved;
        std::vector<std::string> aliases{};
    };
    // Forward: the tensor has just been computed.
    uint32_t produce(saved tensor);

    void forward() noexcept { steps_ = &graph_.forward; }
    void backward() noexcept { steps_ = &graph_.backward; }
    void run(layer_work work) { add(layer_step_kind::work, std::move(work), 0); }
    void use(uint32_t tensor) { add(layer_step_kind::use, {}, tensor); }
    void release(uint32_t tensor) { add(layer_step_kind::release, {}, tensor); }
    void backward_begins() { add(layer_step_kind::backward_begins, {}, 0); }
    // Behind the first product that needs nothing saved.
    void backward_begins_late() {
        if (!shape_.recompute_first) {
            backward_begins();
        }
    }
    // Nothing where all experts are here.
    void exchange_begin(std::string name, double numbers_per_token);
    void exchange_end();

    [[nodiscard]] const layer_shape &shape() const noexcept { return shape_; }
    [[nodiscard]] double activations(double per_token) const noexcept { return per_token * shape_.activation_bytes; }
    // Bytes that leave this device when so many activations per token go to experts.
    [[nodiscard]] double exchanged_bytes(double numbers_per_token) const noexcept;
    [[nodiscard]] layer_graph take() { return std::move(graph_); }

private:
    void add(layer_step_kind what, layer_work work, uint32_t tensor) {
        steps_->push_back({what, std::move(work), tensor});
    }

    layer_shape shape_;
    layer_graph graph_;
    std::vector<layer_step> *steps_ = &graph_.forward;
};

}  // namespace ebb
