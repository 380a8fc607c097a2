#include "kernels.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "tensor_blocks.hpp"

namespace train {
namespace {

template <class scalar>
scalar *at(scalar *array, int64_t offset) {
    return array == nullptr ? nullptr : array + offset;
}

// One head of one sequence, of what a layer saves.
template <class scalar>
attention_head<scalar> saved_head(const layer_args<scalar> &args, int64_t sequence, int64_t head) {
    const model_shape &shape = args.shape;
    const layer_tensors<scalar> &saved = args.saved;
    const int64_t offset = sequence * shape.sequence * shape.width + head * shape.head_width();
    const auto of = [&](scalar *array) {
        return head_of(at(array, offset), shape.sequence, shape.width, shape.head_width());
    };
    return {of(saved.query),
            of(saved.key),
            of(saved.value),
            of(saved.context),
            at(saved.log_sum, sequence * shape.sequence * shape.heads + head),
            shape.heads};
}

// Derivatives of one sequence's query, key and value, each [sequence, width].
template <class scalar>
struct projection_derivatives {
    scalar *query, *key, *value;
};

template <class scalar>
attention_derivatives<scalar> head_derivatives(const model_shape &shape, int64_t head, scalar *d_context,
                                               const projection_derivatives<scalar> &d) {
    const auto of = [&](scalar *array) {
        return head_of(array + head * shape.head_width(), shape.sequence, shape.width, shape.head_width());
    };
    return {of(d_context), of(d.query), of(d.key), of(d.value)};
}

}  // namespace

int64_t workspace_elements(const model_shape &shape) {
    const int64_t hidden = shape.sequence * shape.width;
    const int64_t ffn = shape.sequence * shape.ffn;
    carver<float> counter(nullptr);
    for (int i = 0; i < 6; ++i) {
        counter.take(hidden);
    }
    counter.take(ffn);
    counter.take(ffn);
    counter.take(attention_memory(shape.sequence));
    counter.take(shape.sequence * k_vocabulary);
    return counter.used();
}

template <class scalar>
void initialise(const initialise_args<scalar> &args) {
    const model_shape &shape = args.shape;
    std::mt19937_64 random(args.seed);
    auto fill = [&random](scalar *weight, int64_t elements, double deviation) {
        // Uniform, of the given standard deviation: the library's normal distribution differs between libraries.
        const double range = deviation * std::sqrt(12.0);
        for (int64_t i = 0; i < elements; ++i) {
            const double unit = static_cast<double>(random() >> 11U) * 0x1p-53;
            weight[i] = static_cast<scalar>((unit - 0.5) * range);
        }
    };
    auto ones = [&shape](scalar *weight) { std::fill_n(weight, shape.width, scalar(1)); };
    const double deviation = 1.0 / std::sqrt(static_cast<double>(shape.width));
    const double residual = deviation / std::sqrt(2.0 * static_cast<double>(shape.layers));
    const model_weights<scalar> outer = outer_weights(args.weights, shape);
    fill(outer.token_embedding, k_vocabulary * shape.width, 0.5);
    fill(outer.position_embedding, shape.sequence * shape.width, 0.1);
    ones(outer.final_norm);
    fill(outer.head, shape.width * k_vocabulary, deviation);
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
        const layer_weights<scalar> w = weights_of_layer(args.weights, shape, layer);
        ones(w.attention_norm);
        ones(w.mlp_norm);
        for (scalar *square : {w.query, w.key, w.value}) {
            fill(square, shape.width * shape.width, deviation);
        }
        fill(w.out, shape.width * shape.width, residual);
        fill(w.gate, shape.width * shape.ffn, deviation);
        fill(w.up, shape.width * shape.ffn, deviation);
        fill(w.down, shape.width * shape.ffn, residual);
    }
}

template <class scalar>
void embed(const embed_args<scalar> &args) {
    const model_shape &shape = args.shape;
    for (int64_t t = 0; t < shape.tokens(); ++t) {
        const int64_t position = t % shape.sequence;
        const int64_t token = args.tokens[t / shape.sequence * (shape.sequence + 1) + position];
        row<scalar>(args.hidden + t * shape.width, shape.width) =
            const_row<scalar>(args.weights.token_embedding + token * shape.width, shape.width) +
            const_row<scalar>(args.weights.position_embedding + position * shape.width, shape.width);
    }
}

template <class scalar>
void embed_backward(const embed_args<scalar> &args) {
    const model_shape &shape = args.shape;
    for (int64_t t = 0; t < shape.tokens(); ++t) {
        const int64_t position = t % shape.sequence;
        const int64_t token = args.tokens[t / shape.sequence * (shape.sequence + 1) + position];
        const const_row<scalar> d(args.hidden + t * shape.width, shape.width);
        row<scalar>(args.gradients.token_embedding + token * shape.width, shape.width) += d;
        row<scalar>(args.gradients.position_embedding + position * shape.width, shape.width) += d;
    }
}

template <class scalar>
void project(const layer_args<scalar> &args) {
    const model_shape &shape = args.shape;
    const int64_t block = shape.sequence * shape.width;
    carver<scalar> memory(args.workspace);
    scalar *const normed = memory.take(block);
    for (int64_t first = 0; first < shape.hidden_elements(); first += block) {
        norm(args.saved.input + first, args.weights.attention_norm, normed, shape.sequence, shape.width);
        auto into = [&](const scalar *weight, scalar *output) {
            if (output != nullptr) {
                multiply(normed, weight, output + first, shape.sequence, shape.width, shape.width);
            }
        };
        into(args.weights.query, args.saved.query);
        into(args.weights.key, args.saved.key);
        into(args.weights.value, args.saved.value);
    }
}

template <class scalar>
void attend(const layer_args<scalar> &args) {
    for (int64_t sequence = 0; sequence < args.shape.micro_batch; ++sequence) {
        for (int64_t head = 0; head < args.shape.heads; ++head) {
            attend_head(saved_head(args, sequence, head), args.workspace);
        }
    }
}

template <class scalar>
void project_out(const layer_args<scalar> &args) {
    const model_shape &shape = args.shape;
    const int64_t block = shape.sequence * shape.width;
    for (int64_t first = 0; first < shape.hidden_elements(); first += block) {
        multiply(args.saved.context + first, args.weights.out, args.saved.out_projection + first, shape.sequence,
                 shape.width, shape.width);
    }
}

template <class scalar>
void mlp(const layer_args<scalar> &args) {
    const model_shape &shape = args.shape;
    const int64_t hidden = shape.sequence * shape.width;
    const int64_t ffn = shape.sequence * shape.ffn;
    carver<scalar> memory(args.workspace);
    scalar *const residual = memory.take(hidden);
    scalar *const normed = memory.take(hidden);
    scalar *const activated = memory.take(ffn);
    for (int64_t sequence = 0; sequence < shape.micro_batch; ++sequence) {
        const int64_t at_hidden = sequence * hidden;
        scalar *const gate = at(args.saved.gate, sequence * ffn);
        scalar *const up = at(args.saved.up, sequence * ffn);
        add_into(residual, args.saved.input + at_hidden, args.saved.out_projection + at_hidden, hidden);
        norm(residual, args.weights.mlp_norm, normed, shape.sequence, shape.width);
        if (gate != nullptr) {
            multiply(normed, args.weights.gate, gate, shape.sequence, shape.width, shape.ffn);
        }
        if (up != nullptr) {
            multiply(normed, args.weights.up, up, shape.sequence, shape.width, shape.ffn);
        }
        if (args.output != nullptr) {
            swiglu(gate, up, activated, ffn);
            scalar *const output = args.output + at_hidden;
            multiply(activated, args.weights.down, output, shape.sequence, shape.ffn, shape.width);
            row<scalar>(output, hidden) += row<scalar>(residual, hidden);
        }
    }
}

template <class scalar>
void mlp_backward(const layer_args<scalar> &args) {
    const model_shape &shape = args.shape;
    const int64_t rows = shape.sequence;
    const int64_t hidden = rows * shape.width;
    const int64_t ffn = rows * shape.ffn;
    carver<scalar> memory(args.workspace);
    scalar *const residual = memory.take(hidden);
    scalar *const normed = memory.take(hidden);
    scalar *const d_normed = memory.take(hidden);
    scalar *const activated = memory.take(ffn);  // then the derivative by gate
    scalar *const d_activated = memory.take(ffn);
    const layer_weights<scalar> &w = args.weights;
    const layer_weights<scalar> &dw = args.gradients;
    for (int64_t sequence = 0; sequence < shape.micro_batch; ++sequence) {
        const int64_t at_hidden = sequence * hidden;
        const scalar *const gate = args.saved.gate + sequence * ffn;
        const scalar *const up = args.saved.up + sequence * ffn;
        scalar *const derivative = args.derivative + at_hidden;
        swiglu(gate, up, activated, ffn);
        add_weight_gradient(activated, derivative, dw.down, rows, shape.ffn, shape.width);
        multiply_back(derivative, w.down, d_activated, rows, shape.ffn, shape.width, false);
        swiglu_backward(gate, up, activated, d_activated, ffn);

        add_into(residual, args.saved.input + at_hidden, args.saved.out_projection + at_hidden, hidden);
        norm(residual, w.mlp_norm, normed, rows, shape.width);
        add_weight_gradient(normed, activated, dw.gate, rows, shape.width, shape.ffn);
        add_weight_gradient(normed, d_activated, dw.up, rows, shape.width, shape.ffn);
        multiply_back(activated, w.gate, d_normed, rows, shape.width, shape.ffn, false);
        multiply_back(d_activated, w.up, d_normed, rows, shape.width, shape.ffn, true);
        norm_backward(residual, w.mlp_norm, d_normed, dw.mlp_norm, derivative, rows, shape.width);
    }
}

template <class scalar>
void attention_backward(const layer_args<scalar> &args) {
    const model_shape &shape = args.shape;
    const int64_t rows = shape.sequence;
    const int64_t width = shape.width;
    carver<scalar> memory(args.workspace);
    scalar *const normed = memory.take(rows * width);
    scalar *const d_normed = memory.take(rows * width);
    scalar *const d_context = memory.take(rows * width);
    const projection_derivatives<scalar> d{memory.take(rows * width), memory.take(rows * width),
                                           memory.take(rows * width)};
    scalar *const score_memory = memory.take(attention_memory(rows));
    const layer_weights<scalar> &w = args.weights;
    const layer_weights<scalar> &dw = args.gradients;
    for (int64_t sequence = 0; sequence < shape.micro_batch; ++sequence) {
        const int64_t first = sequence * rows * width;
        scalar *const derivative = args.derivative + first;
        add_weight_gradient(args.saved.context + first, derivative, dw.out, rows, width, width);
        multiply_back(derivative, w.out, d_context, rows, width, width, false);
        for (int64_t head = 0; head < shape.heads; ++head) {
            attend_head_backward(saved_head(args, sequence, head), head_derivatives(shape, head, d_context, d),
                                 score_memory);
        }
        norm(args.saved.input + first, w.attention_norm, normed, rows, width);
        add_weight_gradient(normed, d.query, dw.query, rows, width, width);
        add_weight_gradient(normed, d.key, dw.key, rows, width, width);
        add_weight_gradient(normed, d.value, dw.value, rows, width, width);
        multiply_back(d.query, w.query, d_normed, rows, width, width, false);
        multiply_back(d.key, w.key, d_normed, rows, width, width, true);
        multiply_back(d.value, w.value, d_normed, rows, width, width, true);
        norm_backward(args.saved.input + first, w.attention_norm, d_normed, dw.attention_norm, derivative, rows, width);
    }
}

template <class scalar>
void head_loss(const head_args<scalar> &args) {
    const model_shape &shape = args.shape;
    const int64_t rows = shape.sequence;
    const int64_t width = shape.width;
    carver<scalar> memory(args.workspace);
    scalar *const normed = memory.take(rows * width);
    scalar *const d_normed = memory.take(rows * width);
    scalar *const logits = memory.take(rows * k_vocabulary);
    double loss = 0;
    for (int64_t sequence = 0; sequence < shape.micro_batch; ++sequence) {
        const scalar *const input = args.hidden + sequence * rows * width;
        scalar *const derivative = args.derivative + sequence * rows * width;
        const uint8_t *const tokens = args.tokens + sequence * (rows + 1);
        norm(input, args.weights.final_norm, normed, rows, width);
        multiply(normed, args.weights.head, logits, rows, width, k_vocabulary);
        loss += cross_entropy(logits, tokens + 1, args.scale, rows, k_vocabulary);
        add_weight_gradient(normed, logits, args.gradients.head, rows, width, k_vocabulary);
        multiply_back(logits, args.weights.head, d_normed, rows, width, k_vocabulary, false);
        std::fill_n(derivative, rows * width, scalar(0));
        norm_backward(input, args.weights.final_norm, d_normed, args.gradients.final_norm, derivative, rows, width);
    }
    *args.loss += loss * args.scale;
}

template <class scalar>
void adamw(const adamw_args<scalar> &args) {
    adamw_update(adamw_step(args.step, args.learning_rate), args.gradients, args.weights, args.first_moment,
                 args.second_moment, args.elements);
}

#define TRAIN_INSTANTIATE(scalar)                                 \
    template void initialise(const initialise_args<scalar> &);    \
    template void embed(const embed_args<scalar> &);              \
    template void embed_backward(const embed_args<scalar> &);     \
    template void project(const layer_args<scalar> &);            \
    template void attend(const layer_args<scalar> &);             \
    template void project_out(const layer_args<scalar> &);        \
    template void mlp(const layer_args<scalar> &);                \
    template void mlp_backward(const layer_args<scalar> &);       \
    template void attention_backward(const layer_args<scalar> &); \
    template void head_loss(const head_args<scalar> &);           \
    template void adamw(const adamw_args<scalar> &)

TRAIN_INSTANTIATE(float);
TRAIN_INSTANTIATE(double);

}  // namespace train
