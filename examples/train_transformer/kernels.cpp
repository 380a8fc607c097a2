#include "kernels.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <random>

namespace train {
namespace {

using Eigen::Dynamic;

template <class scalar>
using matrix = Eigen::Matrix<scalar, Dynamic, Dynamic, Eigen::RowMajor>;
template <class scalar>
using view = Eigen::Map<matrix<scalar>>;
template <class scalar>
using const_view = Eigen::Map<const matrix<scalar>>;
template <class scalar>
using head_view = Eigen::Map<matrix<scalar>, 0, Eigen::OuterStride<>>;  // one head's columns of a sequence
template <class scalar>
using const_head_view = Eigen::Map<const matrix<scalar>, 0, Eigen::OuterStride<>>;
template <class scalar>
using row = Eigen::Map<Eigen::Array<scalar, 1, Dynamic>>;
template <class scalar>
using const_row = Eigen::Map<const Eigen::Array<scalar, 1, Dynamic>>;

constexpr double k_norm_epsilon = 1e-5;
constexpr int64_t k_attention_rows = 64;  // rows of the score matrix at a time: what is above the diagonal is skipped

// output = input / rms(input) * weight, row by row.
template <class scalar>
void norm(const scalar *input, const scalar *weight, scalar *output, int64_t rows, int64_t width) {
    const const_row<scalar> w(weight, width);
    for (int64_t r = 0; r < rows; ++r) {
        const const_row<scalar> x(input + r * width, width);
        const scalar mean_square = x.square().mean();
        const scalar scale = scalar(1) / std::sqrt(mean_square + scalar(k_norm_epsilon));
        row<scalar>(output + r * width, width) = x * scale * w;
    }
}

// Adds to weight_gradient, and to derivative what the norm's input gets from `upstream`.
template <class scalar>
void norm_backward(const scalar *input, const scalar *weight, const scalar *upstream, scalar *weight_gradient,
                   scalar *derivative, int64_t rows, int64_t width) {
    const const_row<scalar> w(weight, width);
    row<scalar> dw(weight_gradient, width);
    for (int64_t r = 0; r < rows; ++r) {
        const const_row<scalar> x(input + r * width, width);
        const const_row<scalar> dy(upstream + r * width, width);
        const scalar mean_square = x.square().mean();
        const scalar scale = scalar(1) / std::sqrt(mean_square + scalar(k_norm_epsilon));
        const scalar along = (dy * w * x).mean() * scale * scale;
        dw += dy * x * scale;
        row<scalar>(derivative + r * width, width) += (dy * w - x * along) * scale;
    }
}

template <class scalar>
void multiply(const scalar *a, const scalar *b, scalar *c, int64_t rows, int64_t inner, int64_t columns) {
    view<scalar>(c, rows, columns).noalias() =
        const_view<scalar>(a, rows, inner) * const_view<scalar>(b, inner, columns);
}

// weight_gradient += input^T * upstream
template <class scalar>
void add_weight_gradient(const scalar *input, const scalar *upstream, scalar *weight_gradient, int64_t rows,
                         int64_t inner, int64_t columns) {
    view<scalar>(weight_gradient, inner, columns).noalias() +=
        const_view<scalar>(input, rows, inner).transpose() * const_view<scalar>(upstream, rows, columns);
}

// derivative (+)= upstream * weight^T
template <class scalar>
void multiply_back(const scalar *upstream, const scalar *weight, scalar *derivative, int64_t rows, int64_t inner,
                   int64_t columns, bool add) {
    const const_view<scalar> dy(upstream, rows, columns);
    const const_view<scalar> w(weight, inner, columns);
    view<scalar> dx(derivative, rows, inner);
    if (add) {
        dx.noalias() += dy * w.transpose();
    } else {
        dx.noalias() = dy * w.transpose();
    }
}

// Rows of softmax scores [first, last) of one head over keys [0, last): what each query may see.
template <class scalar>
struct score_block {
    int64_t first;
    int64_t last;
    [[nodiscard]] int64_t rows() const { return last - first; }
};

template <class scalar, class queries, class keys>
view<scalar> scores(scalar *memory, const score_block<scalar> &block, const queries &q, const keys &k) {
    view<scalar> s(memory, block.rows(), block.last);
    s.noalias() = q.middleRows(block.first, block.rows()) * k.topRows(block.last).transpose();
    s *= scalar(1) / std::sqrt(scalar(q.cols()));
    return s;
}

// Where the parts of one head of one sequence begin in a [tokens, width] array.
int64_t head_offset(const model_shape &shape, int64_t sequence, int64_t head) {
    return sequence * shape.sequence * shape.width + head * shape.head_width();
}

template <class scalar>
head_view<scalar> head_of(scalar *array, const model_shape &shape, int64_t sequence, int64_t head) {
    return head_view<scalar>(array + head_offset(shape, sequence, head), shape.sequence, shape.head_width(),
                             Eigen::OuterStride<>(shape.width));
}

template <class scalar>
void attend_head(const layer_args<scalar> &args, int64_t sequence, int64_t head, scalar *memory) {
    const model_shape &shape = args.shape;
    const auto q = head_of(args.saved.query, shape, sequence, head);
    const auto k = head_of(args.saved.key, shape, sequence, head);
    const auto v = head_of(args.saved.value, shape, sequence, head);
    for (int64_t first = 0; first < shape.sequence; first += k_attention_rows) {
        const score_block<scalar> block{first, std::min(first + k_attention_rows, shape.sequence)};
        view<scalar> s = scores(memory, block, q, k);
        for (int64_t r = 0; r < block.rows(); ++r) {
            const int64_t seen = first + r + 1;
            auto visible = s.row(r).head(seen).array();
            const scalar largest = visible.maxCoeff();
            visible = (visible - largest).exp();
            const scalar sum = visible.sum();
            visible *= scalar(1) / sum;
            s.row(r).tail(block.last - seen).setZero();
            if (args.saved.log_sum != nullptr) {
                const int64_t token = sequence * shape.sequence + first + r;
                args.saved.log_sum[token * shape.heads + head] = largest + std::log(sum);
            }
        }
        if (args.saved.context != nullptr) {
            auto context = head_of(args.saved.context, shape, sequence, head);
            context.middleRows(first, block.rows()).noalias() = s * v.topRows(block.last);
        }
    }
}

// Derivatives of one sequence's query, key and value, each [sequence, width].
template <class scalar>
struct projection_derivatives {
    scalar *query, *key, *value;
};

template <class scalar>
void attend_head_backward(const layer_args<scalar> &args, int64_t sequence, int64_t head, scalar *d_context_memory,
                          const projection_derivatives<scalar> &out, scalar *memory) {
    const model_shape &shape = args.shape;
    const auto q = head_of(args.saved.query, shape, sequence, head);
    const auto k = head_of(args.saved.key, shape, sequence, head);
    const auto v = head_of(args.saved.value, shape, sequence, head);
    const auto context = head_of(args.saved.context, shape, sequence, head);
    const auto d_context = head_of(d_context_memory, shape, 0, head);
    auto dq = head_of(out.query, shape, 0, head);
    auto dk = head_of(out.key, shape, 0, head);
    auto dv = head_of(out.value, shape, 0, head);
    dk.setZero();
    dv.setZero();
    const scalar scale = scalar(1) / std::sqrt(scalar(shape.head_width()));
    scalar *const d_memory = memory + k_attention_rows * shape.sequence;
    for (int64_t first = 0; first < shape.sequence; first += k_attention_rows) {
        const score_block<scalar> block{first, std::min(first + k_attention_rows, shape.sequence)};
        view<scalar> p = scores(memory, block, q, k);
        view<scalar> ds(d_memory, block.rows(), block.last);
        ds.noalias() = d_context.middleRows(first, block.rows()) * v.topRows(block.last).transpose();
        for (int64_t r = 0; r < block.rows(); ++r) {
            const int64_t seen = first + r + 1;
            const scalar log_sum = args.saved.log_sum[(sequence * shape.sequence + first + r) * shape.heads + head];
            const scalar along = d_context.row(first + r).dot(context.row(first + r));
            auto visible = p.row(r).head(seen).array();
            visible = (visible - log_sum).exp();
            ds.row(r).head(seen).array() = (ds.row(r).head(seen).array() - along) * visible * scale;
            p.row(r).tail(block.last - seen).setZero();
            ds.row(r).tail(block.last - seen).setZero();
        }
        dv.topRows(block.last).noalias() += p.transpose() * d_context.middleRows(first, block.rows());
        dk.topRows(block.last).noalias() += ds.transpose() * q.middleRows(first, block.rows());
        dq.middleRows(first, block.rows()).noalias() = ds * k.topRows(block.last);
    }
}

template <class scalar>
scalar *at(scalar *array, int64_t offset) {
    return array == nullptr ? nullptr : array + offset;
}

template <class scalar>
void add_into(scalar *sum, const scalar *first, const scalar *second, int64_t elements) {
    row<scalar>(sum, elements) = const_row<scalar>(first, elements) + const_row<scalar>(second, elements);
}

// silu(gate) * up, a few rows at a time by the compiler's vectors.
template <class scalar>
void swiglu(const scalar *gate, const scalar *up, scalar *output, int64_t elements) {
    const const_row<scalar> g(gate, elements);
    const const_row<scalar> u(up, elements);
    row<scalar>(output, elements) = g / (scalar(1) + (-g).exp()) * u;
}

// In: derivative by swiglu's output. Out: by gate and by up (in place).
template <class scalar>
void swiglu_backward(const scalar *gate, const scalar *up, scalar *d_gate, scalar *d_output_then_up, int64_t elements) {
    const const_row<scalar> g(gate, elements);
    const const_row<scalar> u(up, elements);
    row<scalar> dg(d_gate, elements);
    row<scalar> d(d_output_then_up, elements);
    dg = scalar(1) / (scalar(1) + (-g).exp());  // the sigmoid
    const auto sigmoid = dg;
    // Both need the sigmoid, and dg holds it: by up first into a block small enough to stay in registers.
    constexpr int64_t k_block = 64;
    Eigen::Array<scalar, 1, k_block> s;
    for (int64_t first = 0; first < elements; first += k_block) {
        const int64_t n = std::min(k_block, elements - first);
        s.head(n) = sigmoid.segment(first, n);
        dg.segment(first, n) = d.segment(first, n) * u.segment(first, n) * s.head(n) *
                               (scalar(1) + g.segment(first, n) * (scalar(1) - s.head(n)));
        d.segment(first, n) = d.segment(first, n) * g.segment(first, n) * s.head(n);
    }
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
    counter.take(2 * k_attention_rows * shape.sequence);
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
            attend_head(args, sequence, head, args.workspace);
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
    scalar *const score_memory = memory.take(2 * k_attention_rows * rows);
    const layer_weights<scalar> &w = args.weights;
    const layer_weights<scalar> &dw = args.gradients;
    for (int64_t sequence = 0; sequence < shape.micro_batch; ++sequence) {
        const int64_t first = sequence * rows * width;
        scalar *const derivative = args.derivative + first;
        add_weight_gradient(args.saved.context + first, derivative, dw.out, rows, width, width);
        multiply_back(derivative, w.out, d_context, rows, width, width, false);
        for (int64_t head = 0; head < shape.heads; ++head) {
            attend_head_backward(args, sequence, head, d_context, d, score_memory);
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
        for (int64_t r = 0; r < rows; ++r) {
            row<scalar> z(logits + r * k_vocabulary, k_vocabulary);
            const int64_t target = tokens[r + 1];
            const scalar of_target = z[target];
            const scalar largest = z.maxCoeff();
            z = (z - largest).exp();
            const scalar sum = z.sum();
            loss += static_cast<double>(std::log(sum) + largest - of_target);
            z *= static_cast<scalar>(args.scale) / sum;
            z[target] -= static_cast<scalar>(args.scale);
        }
        add_weight_gradient(normed, logits, args.gradients.head, rows, width, k_vocabulary);
        multiply_back(logits, args.weights.head, d_normed, rows, width, k_vocabulary, false);
        std::fill_n(derivative, rows * width, scalar(0));
        norm_backward(input, args.weights.final_norm, d_normed, args.gradients.final_norm, derivative, rows, width);
    }
    *args.loss += loss * args.scale;
}

template <class scalar>
void adamw(const adamw_args<scalar> &args) {
    constexpr double k_beta1 = 0.9;
    constexpr double k_beta2 = 0.95;
    constexpr double k_decay = 0.01;
    const auto step = static_cast<double>(args.step);
    const auto rate = static_cast<scalar>(args.learning_rate / (1.0 - std::pow(k_beta1, step)));
    const auto correction = static_cast<scalar>(1.0 / (1.0 - std::pow(k_beta2, step)));
    const auto keep = static_cast<scalar>(1.0 - args.learning_rate * k_decay);
    const const_row<scalar> g(args.gradients, args.elements);
    row<scalar> w(args.weights, args.elements);
    row<scalar> m(args.first_moment, args.elements);
    row<scalar> v(args.second_moment, args.elements);
    m = m * scalar(k_beta1) + g * scalar(1.0 - k_beta1);
    v = v * scalar(k_beta2) + g.square() * scalar(1.0 - k_beta2);
    w = w * keep - m * rate / ((v * correction).sqrt() + scalar(1e-8));
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
