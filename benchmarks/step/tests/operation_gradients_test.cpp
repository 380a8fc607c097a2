// The backward operations against finite differences of the forward ones, in double precision.
#include <gtest/gtest.h>

#include <functional>

#include "cpu_math.hpp"
#include "finite_differences.hpp"
#include "random_values.hpp"
#include "routing.hpp"

namespace step {
namespace {

using array = std::vector<double>;

array random_array(int64_t count, uint64_t seed, double middle = 0, double spread = 1) {
    array values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = middle + spread * (2 * random_unit(seed, i) - 1);
    }
    return values;
}

array zeros(int64_t count) {
    return array(static_cast<size_t>(count), 0.0);
}

double dot(const array &a, const array &b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        sum += a[i] * b[i];
    }
    return sum;
}

// `gradient` must be that of value() by x.
void expect_gradient(array &x, const array &gradient, const std::function<double()> &value) {
    ASSERT_EQ(x.size(), gradient.size());
    train::expect_gradients(x.data(), gradient.data(), x.size(), 1, {1e-7, 1e-6}, value);
}

class operation_gradients : public ::testing::Test {
protected:
    direct_math<double> math;
};

TEST_F(operation_gradients, embed) {
    const batch_shape batch{2, 5};
    const int64_t width = 3;
    std::vector<uint8_t> tokens{1, 4, 4, 0, 2, 9, 4, 1, 1, 5, 0, 9};
    array embedding = random_array(6 * width, 1);
    array positions = random_array(5 * width, 2);
    const array upstream = random_array(10 * width, 3);
    const auto value = [&] {
        array output = zeros(10 * width);
        math.run(embed_call{batch, width, tokens.data(), embedding.data(), positions.data(), output.data()});
        return dot(output, upstream);
    };
    array of_embedding = zeros(6 * width);
    array of_positions = zeros(5 * width);
    math.run(
        embed_backward_call{batch, width, tokens.data(), upstream.data(), of_embedding.data(), of_positions.data()});
    expect_gradient(embedding, of_embedding, value);
    expect_gradient(positions, of_positions, value);
}

TEST_F(operation_gradients, norm_adds_to_what_is_there) {
    const int64_t rows = 3;
    const int64_t width = 7;
    array input = random_array(rows * width, 1);
    array plus = random_array(rows * width, 2);
    array weight = random_array(width, 3, 1);
    const array upstream = random_array(rows * width, 4);
    array sum = zeros(rows * width);
    array output = zeros(rows * width);
    const auto value = [&] {
        math.run(norm_call{rows, width, input.data(), plus.data(), sum.data(), weight.data(), output.data()});
        return dot(output, upstream);
    };
    value();
    const array d_before = random_array(rows * width, 5);
    const array w_before = random_array(width, 6);
    array derivative = d_before;
    array of_weight = w_before;
    math.run(norm_backward_call{rows, width, sum.data(), weight.data(), upstream.data(), of_weight.data(),
                                derivative.data()});
    for (size_t i = 0; i < derivative.size(); ++i) {
        derivative[i] -= d_before[i];
    }
    for (size_t i = 0; i < of_weight.size(); ++i) {
        of_weight[i] -= w_before[i];
    }
    expect_gradient(input, derivative, value);
    expect_gradient(plus, derivative, value);
    expect_gradient(weight, of_weight, value);
}

TEST_F(operation_gradients, products) {
    const int64_t rows = 3;
    const int64_t inner = 4;
    const int64_t columns = 5;
    array left = random_array(rows * inner, 1);
    array right = random_array(inner * columns, 2);
    array plus = random_array(rows * columns, 3);
    const array upstream = random_array(rows * columns, 4);
    const auto value = [&] {
        array output = zeros(rows * columns);
        math.run(multiply_call{rows, inner, columns, left.data(), right.data(), plus.data(), output.data()});
        return dot(output, upstream);
    };
    array of_left = zeros(rows * inner);
    array of_right = zeros(inner * columns);
    math.run(multiply_back_call{rows, inner, columns, upstream.data(), right.data(), nullptr, of_left.data()});
    math.run(weight_gradient_call{rows, inner, columns, left.data(), upstream.data(), of_right.data()});
    expect_gradient(left, of_left, value);
    expect_gradient(right, of_right, value);
    expect_gradient(plus, upstream, value);

    array twice = of_left;
    math.run(multiply_back_call{rows, inner, columns, upstream.data(), right.data(), twice.data(), twice.data()});
    math.run(weight_gradient_call{rows, inner, columns, left.data(), upstream.data(), of_right.data()});
    for (size_t i = 0; i < twice.size(); ++i) {
        EXPECT_NEAR(twice[i], 2 * of_left[i], 1e-12);
    }
    expect_gradient(right, of_right, [&] { return 2 * value(); });
}

TEST_F(operation_gradients, attention) {
    const batch_shape batch{2, 70};  // more than one block of rows
    const int64_t heads = 2;
    const int64_t head_width = 3;
    const int64_t count = batch.tokens() * heads * head_width;
    array query = random_array(count, 1, 0, 2);
    array key = random_array(count, 2, 0, 2);
    array value_array = random_array(count, 3);
    array context = zeros(count);
    array log_sum = zeros(batch.tokens() * heads);
    const array upstream = random_array(count, 4);
    const attention_call forward{
        batch, heads, head_width, query.data(), key.data(), value_array.data(), context.data(), log_sum.data()};
    const auto value = [&] {
        array output = zeros(count);
        attention_call again = forward;
        again.context = output.data();
        again.log_sum = nullptr;
        math.run(again);
        return dot(output, upstream);
    };
    math.run(forward);
    array d_query = zeros(count);
    array d_key = zeros(count);
    array d_value = zeros(count);
    math.run(attention_backward_call{forward, upstream.data(), d_query.data(), d_key.data(), d_value.data()});
    expect_gradient(query, d_query, value);
    expect_gradient(key, d_key, value);
    expect_gradient(value_array, d_value, value);
}

TEST_F(operation_gradients, swiglu_and_its_scale) {
    const int64_t rows = 4;
    const int64_t columns = 70;
    array gate = random_array(rows * columns, 1, 0, 3);
    array up = random_array(rows * columns, 2);
    array scale = random_array(6, 3, 1);
    const std::vector<int32_t> slots{5, 0, 2, 3};
    const array upstream = random_array(rows * columns, 4);
    const auto value = [&] {
        array output = zeros(rows * columns);
        math.run(swiglu_call{rows, columns, gate.data(), up.data(), {scale.data(), slots.data()}, output.data()});
        return dot(output, upstream);
    };
    array d_up = upstream;
    array d_gate = zeros(rows * columns);
    array d_scale = zeros(6);
    math.run(swiglu_backward_call{rows,
                                  columns,
                                  gate.data(),
                                  up.data(),
                                  {scale.data(), slots.data()},
                                  d_up.data(),
                                  d_gate.data(),
                                  d_scale.data()});
    expect_gradient(gate, d_gate, value);
    expect_gradient(up, d_up, value);
    expect_gradient(scale, d_scale, value);

    const auto plain_value = [&] {
        array output = zeros(rows * columns);
        math.run(swiglu_call{rows, columns, gate.data(), up.data(), {}, output.data()});
        return dot(output, upstream);
    };
    d_up = upstream;
    math.run(swiglu_backward_call{rows, columns, gate.data(), up.data(), {}, d_up.data(), d_gate.data(), nullptr});
    expect_gradient(gate, d_gate, plain_value);
    expect_gradient(up, d_up, plain_value);
}

TEST_F(operation_gradients, gates) {
    const int64_t tokens = 3;
    const int64_t experts = 5;
    const int64_t top_k = 3;
    const std::vector<int32_t> expert_of_slot{0, 3, 4, 2, 1, 0, 4, 2, 3};
    array logits = random_array(tokens * experts, 1, 0, 2);
    const array upstream = random_array(tokens * top_k, 2);
    array gates = zeros(tokens * top_k);
    const auto value = [&] {
        math.run(gates_call{tokens, experts, top_k, logits.data(), expert_of_slot.data(), gates.data()});
        return dot(gates, upstream);
    };
    value();
    array d_logits = random_array(tokens * experts, 3);  // to be overwritten
    math.run(gates_backward_call{tokens, experts, top_k, gates.data(), upstream.data(), expert_of_slot.data(),
                                 d_logits.data()});
    expect_gradient(logits, d_logits, value);
}

TEST_F(operation_gradients, combine_is_what_gather_is_backward) {
    const int64_t tokens = 3;
    const int64_t top_k = 2;
    const int64_t width = 2;
    const std::vector<int32_t> row_of_slot{2, 0, -1, 3, 1, -1};
    const std::vector<int32_t> token_of_row{0, 2, 0, 1};
    array source = random_array(tokens * width, 1);
    const array upstream = random_array(4 * width, 2);
    const auto value = [&] {
        array gathered = zeros(4 * width);
        math.run(gather_call{4, width, source.data(), token_of_row.data(), gathered.data()});
        return dot(gathered, upstream);
    };
    array derivative = random_array(tokens * width, 3);
    math.run(combine_call{tokens, top_k, width, upstream.data(), row_of_slot.data(), nullptr, derivative.data()});
    expect_gradient(source, derivative, value);

    const array plus = random_array(tokens * width, 4);
    array combined = zeros(tokens * width);
    math.run(combine_call{tokens, top_k, width, upstream.data(), row_of_slot.data(), plus.data(), combined.data()});
    for (size_t i = 0; i < combined.size(); ++i) {
        EXPECT_NEAR(combined[i], derivative[i] + plus[i], 1e-12);
    }
}

TEST_F(operation_gradients, cross_entropy) {
    const batch_shape batch{2, 3};
    const int64_t columns = 4;
    const std::vector<uint8_t> tokens{9, 0, 3, 1, 9, 2, 2, 0};
    array logits = random_array(6 * columns, 1, 0, 3);
    const auto run = [&](array &at) {
        double loss = 1;  // is added to
        math.run(cross_entropy_call{batch, columns, tokens.data(), at.data(), 0.25, &loss});
        return loss - 1;
    };
    array derivative = logits;
    run(derivative);
    expect_gradient(logits, derivative, [&] {
        array again = logits;
        return run(again);
    });
}

// By hand: with a gradient that is always the same, a step is the learning rate, less decay.
TEST_F(operation_gradients, adamw_moves_by_the_learning_rate) {
    array weights{1.0, -2.0};
    const array gradients{0.5, -3.0};
    array first = zeros(2);
    array second = zeros(2);
    for (int64_t step = 1; step <= 3; ++step) {
        const array before = weights;
        math.run(
            adamw_call{2, weights.data(), weights.data(), gradients.data(), first.data(), second.data(), step, 0.01});
        for (size_t i = 0; i < 2; ++i) {
            const double sign = gradients[i] > 0 ? 1 : -1;
            EXPECT_NEAR(weights[i], before[i] * (1 - 0.01 * 0.01) - 0.01 * sign, 1e-8);
        }
    }
}

TEST_F(operation_gradients, fill_and_clear) {
    array weights = zeros(1000);
    array master = zeros(1000);
    math.run(fill_call{weights.data(), master.data(), 1000, 3, 2, 1});
    EXPECT_EQ(weights, master);
    double sum = 0;
    for (const double w : weights) {
        EXPECT_GE(w, 1.5);
        EXPECT_LT(w, 2.5);
        sum += w;
    }
    EXPECT_NEAR(sum / 1000, 2, 0.05);
    math.run(clear_call{weights.data(), 999 * sizeof(double)});
    EXPECT_EQ(weights[998], 0);
    EXPECT_EQ(weights[999], master[999]);
}

}  // namespace
}  // namespace step
