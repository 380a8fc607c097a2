// A small training step, written as a training loop would be: layers of a product and an activation, two saved tensors
// each, gradients of all weights. What becomes of the saved tensors is Ebb's; what is computed must not depend on it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu_world.hpp"

namespace ebb::test {

enum class keeping : uint8_t { keep, recompute, offload, automatic };

class training_chain {
public:
    // All memory is taken here. The runtime must outlive it.
    training_chain(gpu_world &world, ebb_runtime *runtime, keeping how, cudaStream_t stream);
    ~training_chain();
    training_chain(const training_chain &) = delete;
    training_chain &operator=(const training_chain &) = delete;

    // Bytes of one saved tensor; there are two per layer.
    [[nodiscard]] static uint64_t tensor_bytes(const chain_shape &shape);

    void make_input(uint64_t seed);
    // From the input to the gradients, which it begins from zero. Enqueues only: may be captured.
    void forward_and_backward();
    void descend();
    // Waits; of all layers, one after the other.
    [[nodiscard]] std::vector<float> gradients();

    // Steps with these seeds, gradients of each.
    std::vector<std::vector<float>> train(const std::vector<uint64_t> &seeds);

private:
    // Memory of the device with an owner that gives it back: the loop, or Ebb through its deleter.
    struct buffer {
        training_chain *chain = nullptr;
        float *data = nullptr;
    };
    struct saved_tensor {
        std::string name;
        ebb_activation handle = 0;
    };
    struct claimed {
        ebb_claim claim = 0;
        const float *data = nullptr;
    };

    buffer *take();
    void give_back(buffer *b) { free_.push_back(b); }
    float *new_memory(size_t count);
    void save(saved_tensor &into, buffer *b, ebb_placement placement, const saved_tensor *recomputed_from);
    claimed reload(const saved_tensor &s);
    void end(const claimed &c);
    void release(saved_tensor &s);
    buffer *forward();
    void backward(buffer *upstream);
    void layer_weight_gradient(size_t layer, const float *upstream);
    [[nodiscard]] int count() const { return shape_.rows * shape_.width; }
    [[nodiscard]] int weight_count() const { return shape_.width * shape_.width; }

    gpu_world &world_;
    ebb_runtime *runtime_;
    keeping how_;
    cudaStream_t stream_;
    chain_shape shape_;
    std::vector<buffer> buffers_;
    std::vector<buffer *> free_;
    std::vector<void *> memory_;
    float *input_ = nullptr;
    std::vector<float *> weights_, gradients_;
    std::vector<saved_tensor> inputs_, products_;  // by layer
};

}  // namespace ebb::test
