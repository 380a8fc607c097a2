// A model's forward and backward pass on any device, all that it saves kept; small, with sizes that no two dimensions
// share.
#pragma once

#include <cstring>
#include <vector>

#include "layer_math.hpp"

namespace step {

// With experts, some tokens find no room.
inline step_shape test_shape(int64_t width, int64_t ffn, int64_t heads, int64_t sequence, bool with_experts) {
    step_shape shape;
    shape.layers = 2;
    shape.width = width;
    shape.heads = heads;
    shape.ffn = ffn;
    shape.sequence = sequence;
    shape.micro_batch = 2;
    if (with_experts) {
        shape.experts = 8;
        shape.top_k = 2;
        shape.capacity_factor = 1.1;
    }
    return shape;
}

class model_on_device {
public:
    model_on_device(step_device &device, const step_shape &s, std::shared_ptr<void> weights)
        : shape(s),
          device_(device),
          weights_(std::move(weights)),
          gradients_(device.allocate(memory_kind::weights, gradient_bytes())),
          math_(device, s, {weights_.get(), gradients_.get()}),
          tables_(device, s, 3),
          tokens_(device.allocate(memory_kind::scratch, static_cast<uint64_t>(s.micro_batch * (s.sequence + 1)))) {
        std::vector<uint8_t> tokens(static_cast<size_t>(s.micro_batch * (s.sequence + 1)));
        for (size_t i = 0; i < tokens.size(); ++i) {
            tokens[i] = static_cast<uint8_t>(i * 37 % 251);
        }
        device.upload(tokens_.get(), tokens.data(), tokens.size());
        device.math().run(clear_call{gradients_.get(), gradient_bytes()});
        layers_.resize(static_cast<size_t>(s.layers) + 1);
        for (auto &layer : layers_) {
            for (std::shared_ptr<void> &a : layer) {
                a = new_array();
            }
        }
    }

    double forward() {
        math_.embed(tokens(), layers_[0][k_input].get());
        for (int64_t layer = 0; layer < shape.layers; ++layer) {
            const layer_arrays a = arrays_of(layer);
            math_.project(a);
            math_.attend(a);
            math_.project_out(a);
            math_.mlp(a);
        }
        double loss = 0;
        math_.head(tokens(), layers_.back()[k_input].get(), 1.0 / static_cast<double>(shape.tokens()), &loss);
        return loss;
    }

    void backward() {
        for (int64_t layer = shape.layers - 1; layer >= 0; --layer) {
            math_.mlp_backward(arrays_of(layer));
            math_.attention_backward(arrays_of(layer));
        }
        math_.embed_backward(tokens());
    }

    layer_arrays arrays_of(int64_t layer) {
        layer_arrays a;
        a.at = offsets_of_layer(shape, layer);
        a.route = tables_.of(0, 0, layer);
        for (size_t id = 0; id < k_saved_count; ++id) {
            a.saved[id] = saved(layer, id).get();
        }
        a.output = saved(layer + 1, k_input).get();
        return a;
    }

    // The gradients, read as what the device stores.
    template <class stored>
    std::vector<double> gradients() {
        std::vector<stored> values(static_cast<size_t>(offsets_of(shape).end));
        device_.download(values.data(), gradients_.get(), gradient_bytes());
        return {values.begin(), values.end()};
    }

    // Of the size of the largest, filled with zeros.
    std::shared_ptr<void> new_array() {
        const std::shared_ptr<void> made = device_.allocate(memory_kind::activations, array_bytes());
        device_.math().run(clear_call{made.get(), array_bytes()});
        return made;
    }
    [[nodiscard]] uint64_t array_bytes() const {
        return static_cast<uint64_t>(std::max(shape.most_ffn_rows() * shape.ffn, shape.hidden_elements())) *
               std::max(device_.math().element_bytes(), device_.math().real_bytes());
    }
    const std::shared_ptr<void> &saved(int64_t layer, size_t id) { return layers_[static_cast<size_t>(layer)][id]; }
    layer_math &math() { return math_; }

    const step_shape shape;

private:
    [[nodiscard]] uint64_t gradient_bytes() const {
        return static_cast<uint64_t>(offsets_of(shape).end) * device_.math().real_bytes();
    }
    [[nodiscard]] const uint8_t *tokens() const { return static_cast<const uint8_t *>(tokens_.get()); }

    step_device &device_;
    std::shared_ptr<void> weights_, gradients_;
    layer_math math_;
    routing_tables tables_;
    std::shared_ptr<void> tokens_;
    std::vector<std::array<std::shared_ptr<void>, k_saved_count>> layers_;
};

}  // namespace step
