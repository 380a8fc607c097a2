// Building blocks of the kernels that run on the CPU, on Eigen: products, norms, attention of one head, SwiGLU,
// cross-entropy, the optimizer. Arrays are row-major; none allocates memory that it keeps, and the same arguments give
// the same bits. For float (training) and double (tests).
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "adamw_step.hpp"

namespace train {

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

// One head of one sequence in [sequence, width] arrays. The softmax's logarithms of sums lie `stride` apart.
template <class scalar>
struct attention_head {
    head_view<scalar> query, key, value, context;
    scalar *log_sum;
    int64_t log_sum_stride;
};

template <class scalar>
head_view<scalar> head_of(scalar *array, int64_t sequence, int64_t width, int64_t head_width) {
    return head_view<scalar>(array, sequence, head_width, Eigen::OuterStride<>(width));
}

// Elements of memory that the two below need.
inline int64_t attention_memory(int64_t sequence) {
    return 2 * k_attention_rows * sequence;
}

// Writes context and log_sum, where these are not null.
template <class scalar>
void attend_head(const attention_head<scalar> &h, scalar *memory) {
    const int64_t sequence = h.query.rows();
    for (int64_t first = 0; first < sequence; first += k_attention_rows) {
        const score_block<scalar> block{first, std::min(first + k_attention_rows, sequence)};
        view<scalar> s = scores(memory, block, h.query, h.key);
        for (int64_t r = 0; r < block.rows(); ++r) {
            const int64_t seen = first + r + 1;
            auto visible = s.row(r).head(seen).array();
            const scalar largest = visible.maxCoeff();
            visible = (visible - largest).exp();
            const scalar sum = visible.sum();
            visible *= scalar(1) / sum;
            s.row(r).tail(block.last - seen).setZero();
            if (h.log_sum != nullptr) {
                h.log_sum[(first + r) * h.log_sum_stride] = largest + std::log(sum);
            }
        }
        if (h.context.data() != nullptr) {
            head_view<scalar> context = h.context;
            context.middleRows(first, block.rows()).noalias() = s * h.value.topRows(block.last);
        }
    }
}

// The derivatives by query, key and value, from that by context.
template <class scalar>
struct attention_derivatives {
    head_view<scalar> context, query, key, value;
};

template <class scalar>
void attend_head_backward(const attention_head<scalar> &h, attention_derivatives<scalar> d, scalar *memory) {
    const int64_t sequence = h.query.rows();
    d.key.setZero();
    d.value.setZero();
    const scalar scale = scalar(1) / std::sqrt(scalar(h.query.cols()));
    scalar *const d_memory = memory + k_attention_rows * sequence;
    for (int64_t first = 0; first < sequence; first += k_attention_rows) {
        const score_block<scalar> block{first, std::min(first + k_attention_rows, sequence)};
        view<scalar> p = scores(memory, block, h.query, h.key);
        view<scalar> ds(d_memory, block.rows(), block.last);
        const auto d_context = d.context.middleRows(first, block.rows());
        ds.noalias() = d_context * h.value.topRows(block.last).transpose();
        for (int64_t r = 0; r < block.rows(); ++r) {
            const int64_t seen = first + r + 1;
            const scalar log_sum = h.log_sum[(first + r) * h.log_sum_stride];
            const scalar along = d_context.row(r).dot(h.context.row(first + r));
            auto visible = p.row(r).head(seen).array();
            visible = (visible - log_sum).exp();
            ds.row(r).head(seen).array() = (ds.row(r).head(seen).array() - along) * visible * scale;
            p.row(r).tail(block.last - seen).setZero();
            ds.row(r).tail(block.last - seen).setZero();
        }
        d.value.topRows(block.last).noalias() += p.transpose() * d_context;
        d.key.topRows(block.last).noalias() += ds.transpose() * h.query.middleRows(first, block.rows());
        d.query.middleRows(first, block.rows()).noalias() = ds * h.key.topRows(block.last);
    }
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

// Rows of logits become their derivatives by the cross-entropy of their targets times scale. Returns its sum over rows,
// not scaled.
template <class scalar>
double cross_entropy(scalar *logits, const uint8_t *targets, double scale, int64_t rows, int64_t columns) {
    double loss = 0;
    for (int64_t r = 0; r < rows; ++r) {
        row<scalar> z(logits + r * columns, columns);
        const int64_t target = targets[r];
        const scalar of_target = z[target];
        const scalar largest = z.maxCoeff();
        z = (z - largest).exp();
        const scalar sum = z.sum();
        loss += static_cast<double>(std::log(sum) + largest - of_target);
        z *= static_cast<scalar>(scale) / sum;
        z[target] -= static_cast<scalar>(scale);
    }
    return loss;
}

template <class scalar>
void adamw_update(const adamw_step &s, const scalar *gradients, scalar *weights, scalar *first_moment,
                  scalar *second_moment, int64_t elements) {
    const const_row<scalar> g(gradients, elements);
    row<scalar> w(weights, elements);
    row<scalar> m(first_moment, elements);
    row<scalar> v(second_moment, elements);
    m = m * scalar(s.k_beta1) + g * scalar(1.0 - s.k_beta1);
    v = v * scalar(s.k_beta2) + g.square() * scalar(1.0 - s.k_beta2);
    w = w * scalar(s.keep) - m * scalar(s.rate) / ((v * scalar(s.correction)).sqrt() + scalar(1e-8));
}

}  // namespace train
