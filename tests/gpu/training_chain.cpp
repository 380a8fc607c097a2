#include "training_chain.hpp"

#include <gtest/gtest.h>

namespace ebb::test {

namespace {

constexpr float k_learning_rate = 0.01F;
constexpr uint64_t k_weight_seed = 1000;

void ok(cudaError_t error) {
    EXPECT_EQ(error, cudaSuccess);
}
void ok(ebb_status status) {
    EXPECT_EQ(status, EBB_OK) << ebb_status_name(status) << ": " << ebb_last_error();
}

}  // namespace

uint64_t training_chain::tensor_bytes(const chain_shape &shape) {
    return static_cast<uint64_t>(shape.rows) * static_cast<uint64_t>(shape.width) * sizeof(float);
}

training_chain::training_chain(gpu_world &world, ebb_runtime *runtime, keeping how, cudaStream_t stream)
    : world_(world), runtime_(runtime), how_(how), stream_(stream), shape_(world.shape()) {
    const auto layers = static_cast<size_t>(shape_.layers);
    inputs_.resize(layers);
    products_.resize(layers);
    // If everything is kept, two per layer, and what the loop itself holds.
    constexpr size_t k_own_buffers = 6;
    buffers_.resize(2 * layers + k_own_buffers);
    for (buffer &b : buffers_) {
        b = {this, new_memory(static_cast<size_t>(count()))};
        free_.push_back(&b);
    }
    input_ = new_memory(static_cast<size_t>(count()));
    for (size_t layer = 0; layer < layers; ++layer) {
        inputs_[layer].name = "input" + std::to_string(layer);
        products_[layer].name = "product" + std::to_string(layer);
        weights_.push_back(new_memory(static_cast<size_t>(weight_count())));
        gradients_.push_back(new_memory(static_cast<size_t>(weight_count())));
        ok(world_.kernels().fill_random(stream_, weights_.back(), weight_count(), k_weight_seed + layer));
    }
}

training_chain::~training_chain() {
    ok(world_.cuda().stream_synchronize(stream_));
    EXPECT_EQ(free_.size(), buffers_.size()) << "memory that Ebb was given did not come back";
    for (void *memory : memory_) {
        ok(world_.cuda().free(memory));
    }
}

float *training_chain::new_memory(size_t floats) {
    void *made = nullptr;
    ok(world_.cuda().malloc(&made, floats * sizeof(float)));
    memory_.push_back(made);
    return static_cast<float *>(made);
}

training_chain::buffer *training_chain::take() {
    if (free_.empty()) {
        ADD_FAILURE() << "the loop holds more memory than it should";
        return &buffers_.front();
    }
    buffer *b = free_.back();
    free_.pop_back();
    return b;
}

// The loop gives the memory away: it comes back by the deleter, and may then be used behind this stream.
void training_chain::save(saved_tensor &into, buffer *b, ebb_placement placement, const saved_tensor *recomputed_from) {
    const auto stream = reinterpret_cast<ebb_stream>(stream_);
    ebb_offload_args args{};
    args.struct_size = sizeof args;
    args.name = into.name.c_str();
    args.data = b->data;
    args.size_bytes = tensor_bytes(shape_);
    args.producers = &stream;
    args.producer_count = 1;
    args.deleter = [](void *context) {
        auto *given = static_cast<buffer *>(context);
        given->chain->give_back(given);
    };
    args.deleter_context = b;
    args.placement = placement;
    if (recomputed_from != nullptr) {
        args.flags = EBB_OFFLOAD_CAN_RECOMPUTE;
        args.recompute_from = &recomputed_from->handle;
        args.recompute_from_count = 1;
    }
    ebb_offload_info info{};
    info.struct_size = sizeof info;
    ok(ebb_offload(runtime_, &args, &info));
    into.handle = info.activation;
}

training_chain::claimed training_chain::reload(const saved_tensor &s) {
    ebb_reload_info info{};
    info.struct_size = sizeof info;
    const ebb_status status = ebb_reload(runtime_, s.handle, reinterpret_cast<ebb_stream>(stream_), &info);
    if (status == EBB_RECOMPUTE) {
        return {};
    }
    ok(status);
    return {info.claim, static_cast<const float *>(info.data)};
}

void training_chain::end(const claimed &c) {
    ok(ebb_return(runtime_, c.claim, reinterpret_cast<ebb_stream>(stream_)));
}

void training_chain::release(saved_tensor &s) {
    ok(ebb_release(runtime_, s.handle));
    s.handle = 0;
}

void training_chain::make_input(uint64_t seed) {
    ok(world_.kernels().fill_random(stream_, input_, count(), seed));
}

void training_chain::forward_and_backward() {
    for (float *gradient : gradients_) {
        ok(world_.cuda().memset_async(gradient, 0, static_cast<size_t>(weight_count()) * sizeof(float), stream_));
    }
    backward(forward());
}

training_chain::buffer *training_chain::forward() {
    const chain_kernels &run = world_.kernels();
    const ebb_placement of_products = how_ == keeping::offload     ? EBB_PLACE_OFFLOAD
                                      : how_ == keeping::automatic ? EBB_PLACE_BY_POLICY
                                                                   : EBB_PLACE_KEEP;
    const ebb_placement of_inputs = how_ == keeping::recompute ? EBB_PLACE_RECOMPUTE : of_products;
    buffer *x = take();
    ok(world_.cuda().memcpy_async(x->data, input_, tensor_bytes(shape_), cudaMemcpyDeviceToDevice, stream_));
    for (size_t layer = 0; layer < inputs_.size(); ++layer) {
        buffer *product = take();
        ok(run.linear(stream_, x->data, weights_[layer], product->data, shape_.rows, shape_.width));
        // The step's input comes from nowhere that it could be computed from.
        save(inputs_[layer], x, layer == 0 && how_ == keeping::recompute ? EBB_PLACE_KEEP : of_inputs,
             layer == 0 ? nullptr : &products_[layer - 1]);
        x = take();
        ok(run.activate(stream_, product->data, x->data, count()));
        save(products_[layer], product, of_products, nullptr);
    }
    return x;
}

// The loss is half the sum of the squares of the output, whose gradient the output is.
void training_chain::backward(buffer *upstream) {
    const chain_kernels &run = world_.kernels();
    for (size_t layer = inputs_.size(); layer-- > 0;) {
        const claimed product = reload(products_[layer]);
        buffer *downstream = take();
        ok(run.activate_backward(stream_, product.data, upstream->data, downstream->data, count()));
        end(product);
        give_back(upstream);
        layer_weight_gradient(layer, downstream->data);
        release(inputs_[layer]);
        release(products_[layer]);
        upstream = take();
        ok(run.input_gradient(stream_, downstream->data, weights_[layer], upstream->data, shape_.rows, shape_.width));
        give_back(downstream);
    }
    give_back(upstream);
}

void training_chain::layer_weight_gradient(size_t layer, const float *upstream) {
    const chain_kernels &run = world_.kernels();
    const claimed x = reload(inputs_[layer]);
    if (x.data != nullptr) {
        ok(run.weight_gradient(stream_, x.data, upstream, gradients_[layer], shape_.rows, shape_.width));
        end(x);
        return;
    }
    ok(ebb_recompute_begin(runtime_, tensor_bytes(shape_)));
    const claimed before = reload(products_[layer - 1]);
    buffer *again = take();
    ok(run.activate(stream_, before.data, again->data, count()));
    end(before);
    ok(ebb_recompute_end(runtime_));
    ok(run.weight_gradient(stream_, again->data, upstream, gradients_[layer], shape_.rows, shape_.width));
    give_back(again);
}

void training_chain::descend() {
    for (size_t layer = 0; layer < weights_.size(); ++layer) {
        ok(world_.kernels().descend(stream_, weights_[layer], gradients_[layer], weight_count(), k_learning_rate));
    }
}

std::vector<float> training_chain::gradients() {
    const auto each = static_cast<size_t>(weight_count());
    std::vector<float> all(each * gradients_.size());
    ok(world_.cuda().stream_synchronize(stream_));
    for (size_t layer = 0; layer < gradients_.size(); ++layer) {
        ok(world_.cuda().memcpy(all.data() + layer * each, gradients_[layer], each * sizeof(float),
                                cudaMemcpyDeviceToHost));
    }
    return all;
}

std::vector<std::vector<float>> training_chain::train(const std::vector<uint64_t> &seeds) {
    std::vector<std::vector<float>> all;
    for (const uint64_t seed : seeds) {
        ok(ebb_step(runtime_, EBB_PHASE_TRAIN));
        make_input(seed);
        forward_and_backward();
        all.push_back(gradients());
        descend();
    }
    return all;
}

}  // namespace ebb::test
