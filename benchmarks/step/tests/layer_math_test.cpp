// The whole model's gradients against finite differences of its loss, in double precision, on a model small enough to
// try a sample of every weight; dense and with experts, some of whose tokens find no room.
#include <gtest/gtest.h>

#include <cmath>

#include "direct_device.hpp"
#include "layer_math.hpp"
#include "random_values.hpp"

namespace step {
namespace {

using array = std::vector<double>;

step_shape tiny_shape(bool with_experts) {
    step_shape shape;
    shape.layers = 2;
    shape.width = 12;
    shape.heads = 3;
    shape.ffn = 20;
    shape.sequence = 10;
    shape.micro_batch = 2;
    if (with_experts) {
        shape.experts = 4;
        shape.top_k = 2;
        shape.capacity_factor = 1.0;
    }
    return shape;
}

class tiny_model {
public:
    explicit tiny_model(const step_shape &s)
        : shape(s),
          weights(static_cast<size_t>(offsets_of(s).end)),
          gradients(weights.size()),
          math_(device_, s, {weights.data(), gradients.data()}),
          tables_(device_, s, 3),
          tokens_(static_cast<size_t>(s.micro_batch * (s.sequence + 1))) {
        for (size_t i = 0; i < weights.size(); ++i) {
            weights[i] = random_unit(1, i) - 0.5;
        }
        for (size_t i = 0; i < tokens_.size(); ++i) {
            tokens_[i] = static_cast<uint8_t>(i * 37 % 251);
        }
        for (int64_t layer = 0; layer <= s.layers; ++layer) {
            layers_.emplace_back();
            for (std::shared_ptr<void> &a : layers_.back()) {
                a = new_array();
                std::memset(a.get(), 0, array_elements() * sizeof(double));
            }
        }
    }

    double forward() {
        math_.embed(tokens_.data(), layers_[0][k_input].get());
        for (int64_t layer = 0; layer < shape.layers; ++layer) {
            const layer_arrays a = arrays_of(layer);
            math_.project(a);
            math_.attend(a);
            math_.project_out(a);
            math_.mlp(a);
        }
        double loss = 0;
        math_.head(tokens_.data(), layers_.back()[k_input].get(), 1.0 / static_cast<double>(shape.tokens()), &loss);
        return loss;
    }

    void backward() {
        for (int64_t layer = shape.layers - 1; layer >= 0; --layer) {
            math_.mlp_backward(arrays_of(layer));
            math_.attention_backward(arrays_of(layer));
        }
        math_.embed_backward(tokens_.data());
    }

    layer_arrays arrays_of(int64_t layer) {
        layer_arrays a;
        a.at = offsets_of_layer(shape, layer);
        a.route = tables_.of(0, 0, layer);
        for (size_t id = 0; id < k_saved_count; ++id) {
            a.saved[id] = layers_[static_cast<size_t>(layer)][id].get();
        }
        a.output = layers_[static_cast<size_t>(layer) + 1][k_input].get();
        return a;
    }

    layer_math &math() { return math_; }
    std::shared_ptr<void> new_array() {
        return device_.allocate(memory_kind::scratch, array_elements() * sizeof(double));
    }
    array values(const std::shared_ptr<void> &of) const {
        const auto *const first = static_cast<const double *>(of.get());
        return {first, first + array_elements()};
    }
    const std::shared_ptr<void> &saved(int64_t layer, saved_id id) { return layers_[static_cast<size_t>(layer)][id]; }

    const step_shape shape;
    array weights;
    array gradients;

private:
    // Of the largest of them.
    [[nodiscard]] size_t array_elements() const {
        return static_cast<size_t>(std::max(shape.most_ffn_rows() * shape.ffn, shape.hidden_elements()));
    }

    direct_device<double> device_;
    layer_math math_;
    routing_tables tables_;
    std::vector<uint8_t> tokens_;
    std::vector<std::array<std::shared_ptr<void>, k_saved_count>> layers_;
};

class layer_gradients : public ::testing::TestWithParam<bool> {};

TEST_P(layer_gradients, agree_with_finite_differences) {
    tiny_model model(tiny_shape(GetParam()));
    model.forward();
    model.backward();
    const array gradients = model.gradients;
    size_t not_zero = 0;
    size_t tried = 0;
    constexpr double k_difference = 1e-5;
    constexpr size_t k_stride = 13;  // no multiple of a dimension: every part of every weight is met
    for (size_t i = 0; i < model.weights.size(); i += k_stride, ++tried) {
        const double weight = model.weights[i];
        model.weights[i] = weight + k_difference;
        const double above = model.forward();
        model.weights[i] = weight - k_difference;
        const double below = model.forward();
        model.weights[i] = weight;
        const double expected = (above - below) / (2 * k_difference);
        ASSERT_NEAR(gradients[i], expected, 1e-8 + 1e-5 * std::abs(expected)) << "weight " << i;
        not_zero += static_cast<size_t>(expected != 0.0);
    }
    EXPECT_GT(not_zero, tried / 3) << "many weights must matter, else this shows nothing";
}

TEST_P(layer_gradients, parts_computed_again_give_the_same_bits) {
    tiny_model model(tiny_shape(GetParam()));
    model.forward();
    for (const auto &[id, part] :
         std::initializer_list<std::pair<saved_id, void (layer_math::*)(const layer_arrays &)>>{
             {k_key, &layer_math::project},
             {k_context, &layer_math::attend},
             {k_log_sum, &layer_math::attend},
             {k_out_projection, &layer_math::project_out},
             {k_gate, &layer_math::mlp},
             {k_up, &layer_math::mlp}}) {
        const array expected = model.values(model.saved(1, id));
        layer_arrays a = model.arrays_of(1);
        for (const saved_id other : {k_query, k_key, k_value}) {
            a.saved[other] = part == &layer_math::project ? nullptr : a.saved[other];
        }
        for (const saved_id other : {k_context, k_log_sum}) {
            a.saved[other] = part == &layer_math::attend ? nullptr : a.saved[other];
        }
        for (const saved_id other : {k_gate, k_up}) {
            a.saved[other] = part == &layer_math::mlp ? nullptr : a.saved[other];
        }
        const std::shared_ptr<void> again = model.new_array();
        std::memset(again.get(), 0, expected.size() * sizeof(double));
        a.saved[id] = again.get();
        a.output = nullptr;
        (model.math().*part)(a);
        EXPECT_EQ(model.values(again), expected) << id;
    }
}

INSTANTIATE_TEST_SUITE_P(models, layer_gradients, ::testing::Bool(),
                         [](const auto &made) { return made.param ? "moe" : "dense"; });

}  // namespace
}  // namespace step
