// The written-out derivatives against finite differences of the loss, in double, on a model small enough to
// try a sample of every weight. The forward pass with null outputs (as recomputing uses it) is checked too.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "finite_differences.hpp"
#include "kernels.hpp"

namespace train {
namespace {

using array = std::vector<double>;

// Two layers, two sequences; odd sizes so that no dimension can be mistaken for another.
const model_shape k_shape{2, 12, 3, 20, 70, 2};

struct tiny_layer {
    array input, query, key, value, context, log_sum, out_projection, gate, up;

    tiny_layer()
        : input(hidden()),
          query(hidden()),
          key(hidden()),
          value(hidden()),
          context(hidden()),
          log_sum(static_cast<size_t>(k_shape.row_sum_elements())),
          out_projection(hidden()),
          gate(ffn()),
          up(ffn()) {}

    static size_t hidden() { return static_cast<size_t>(k_shape.hidden_elements()); }
    static size_t ffn() { return static_cast<size_t>(k_shape.ffn_elements()); }
    layer_tensors<double> tensors() {
        return {input.data(),   query.data(),          key.data(),  value.data(), context.data(),
                log_sum.data(), out_projection.data(), gate.data(), up.data()};
    }
};

class tiny_model {
public:
    tiny_model()
        : weights(static_cast<size_t>(weight_elements(k_shape))),
          gradients(weights.size()),
          layers_(2),
          last_(tiny_layer::hidden()),
          derivative_(tiny_layer::hidden()),
          workspace_(static_cast<size_t>(workspace_elements(k_shape))),
          tokens_(static_cast<size_t>(k_shape.micro_batch * (k_shape.sequence + 1))) {
        initialise(initialise_args<double>{k_shape, weights.data(), 7});
        for (size_t i = 0; i < tokens_.size(); ++i) {
            tokens_[i] = static_cast<uint8_t>(i * 37 % 251);
        }
    }

    double forward() {
        embed(embed_arguments(layers_[0].input.data()));
        for (int64_t i = 0; i < k_shape.layers; ++i) {
            const layer_args<double> args = layer_arguments(i);
            project(args);
            attend(args);
            project_out(args);
            mlp(args);
        }
        double loss = 0;
        head_loss(head_args<double>{
            k_shape, outer_weights(weights.data(), k_shape), outer_weights(gradients.data(), k_shape), tokens_.data(),
            last_.data(), derivative_.data(), 1.0 / static_cast<double>(k_shape.tokens()), &loss, workspace_.data()});
        return loss;
    }

    void backward() {
        for (int64_t i = k_shape.layers - 1; i >= 0; --i) {
            mlp_backward(layer_arguments(i));
            attention_backward(layer_arguments(i));
        }
        embed_backward(embed_arguments(derivative_.data()));
    }

    layer_args<double> layer_arguments(int64_t i) {
        double *output = i + 1 < k_shape.layers ? layers_[static_cast<size_t>(i) + 1].input.data() : last_.data();
        return {k_shape,
                weights_of_layer(weights.data(), k_shape, i),
                weights_of_layer(gradients.data(), k_shape, i),
                layers_[static_cast<size_t>(i)].tensors(),
                output,
                derivative_.data(),
                workspace_.data()};
    }

    tiny_layer &layer(size_t i) { return layers_[i]; }

    array weights;
    array gradients;

private:
    embed_args<double> embed_arguments(double *hidden) {
        return {k_shape, outer_weights(weights.data(), k_shape), outer_weights(gradients.data(), k_shape),
                tokens_.data(), hidden};
    }

    std::vector<tiny_layer> layers_;
    array last_;
    array derivative_;
    array workspace_;
    std::vector<uint8_t> tokens_;
};

TEST(gradients, agree_with_finite_differences) {
    tiny_model model;
    std::fill(model.gradients.begin(), model.gradients.end(), 0.0);
    model.forward();
    model.backward();
    const array gradients = model.gradients;
    constexpr size_t k_stride = 37;  // no multiple of a dimension: every part of every weight is met
    expect_gradients(model.weights.data(), gradients.data(), gradients.size(), k_stride, {1e-8, 1e-5},
                     [&model] { return model.forward(); });
}

TEST(gradients, are_added_to_what_is_there) {
    tiny_model model;
    model.forward();
    model.backward();
    const array once = model.gradients;
    model.forward();
    model.backward();
    for (size_t i = 0; i < once.size(); ++i) {
        ASSERT_NEAR(model.gradients[i], 2 * once[i], 1e-12 + 1e-9 * std::abs(once[i])) << "weight " << i;
    }
}

TEST(recompute, gives_the_same_bits_piece_by_piece) {
    tiny_model model;
    model.forward();
    const tiny_layer expected = model.layer(1);
    layer_args<double> args = model.layer_arguments(1);
    tiny_layer again;
    again.input = expected.input;
    args.output = nullptr;
    args.saved = again.tensors();
    args.saved.key = nullptr;
    project(args);
    EXPECT_EQ(again.query, expected.query);
    EXPECT_EQ(again.value, expected.value);
    EXPECT_NE(again.key, expected.key);
    args.saved = again.tensors();
    project(args);
    args.saved.context = nullptr;
    attend(args);
    EXPECT_EQ(again.log_sum, expected.log_sum);
    EXPECT_NE(again.context, expected.context);
    args.saved = again.tensors();
    args.saved.log_sum = nullptr;
    attend(args);
    args.saved = again.tensors();
    project_out(args);
    mlp(args);
    EXPECT_EQ(again.key, expected.key);
    EXPECT_EQ(again.context, expected.context);
    EXPECT_EQ(again.out_projection, expected.out_projection);
    EXPECT_EQ(again.gate, expected.gate);
    EXPECT_EQ(again.up, expected.up);
}

}  // namespace
}  // namespace train
