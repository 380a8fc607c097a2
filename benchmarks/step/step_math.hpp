// The operations that a training step is made of, enqueued on a device's compute stream in the order of the calls. One
// description of each for all devices: cpu_math and cuda_math carry them out.
//
// Arrays lie in device memory and are row-major. `element` is what activations and weights are stored in, `real` what
// is accumulated: bf16 and float on CUDA; float and float, in tests double and double, on the CPU. The same call on the
// same arrays gives the same bits, whatever ran before.
#pragma once

#include <cstdint>

namespace step {

using element = void;
using real = void;

// [sequences, length] tokens, or rows of something for each of them.
struct batch_shape {
    int64_t sequences = 0;
    int64_t length = 0;

    [[nodiscard]] constexpr int64_t tokens() const { return sequences * length; }
};

struct clear_call {
    void *memory;
    uint64_t size_bytes;
};

// Uniform in middle +- range / 2: the i-th value depends on seed and i alone. `master` may be the weights themselves.
struct fill_call {
    element *weights;
    real *master;
    int64_t elements;
    uint64_t seed;
    double middle;
    double range;
};

// tokens: [sequences, length + 1], the last of a sequence being only a target.
struct embed_call {
    batch_shape batch;
    int64_t width;
    const uint8_t *tokens;
    const element *token_embedding;
    const element *position_embedding;
    element *output;
};

// Adds to the gradients.
struct embed_backward_call {
    batch_shape batch;
    int64_t width;
    const uint8_t *tokens;
    const element *derivative;
    real *token_gradient;
    real *position_gradient;
};

// output = x / rms(x) * weight by rows, x = input (+ plus, if that is not null; then sum = x, which may be null).
struct norm_call {
    int64_t rows;
    int64_t width;
    const element *input;
    const element *plus;
    element *sum;
    const element *weight;
    element *output;
};

// Adds to weight_gradient, and to derivative what the input gets from upstream.
struct norm_backward_call {
    int64_t rows;
    int64_t width;
    const element *input;
    const element *weight;
    const element *upstream;
    real *weight_gradient;
    element *derivative;
};

// output[rows, columns] = left[rows, inner] * right[inner, columns] (+ plus, which may be output).
struct multiply_call {
    int64_t rows, inner, columns;
    const element *left;
    const element *right;
    const element *plus;
    element *output;
};

// output[rows, inner] = left[rows, columns] * right[inner, columns]^T (+ plus, which may be output).
struct multiply_back_call {
    int64_t rows, inner, columns;
    const element *left;
    const element *right;
    const element *plus;
    element *output;
};

// gradient[inner, columns] += input[rows, inner]^T * upstream[rows, columns].
struct weight_gradient_call {
    int64_t rows, inner, columns;
    const element *input;
    const element *upstream;
    real *gradient;
};

// Causal attention. Arrays are [tokens, heads * head_width], log_sum is [sequences, heads, length]: the softmax's
// logarithm of the sum instead of its probabilities. context or log_sum may be null: not wanted.
struct attention_call {
    batch_shape batch;
    int64_t heads;
    int64_t head_width;
    const element *query;
    const element *key;
    const element *value;
    element *context;
    real *log_sum;
};

struct attention_backward_call {
    attention_call forward;  // all of its arrays are read
    const element *d_context;
    element *d_query;
    element *d_key;
    element *d_value;
};

// Which rows of a [slots] array of reals scale the rows of another. Null arrays: nothing is scaled.
struct row_scale {
    const real *values;
    const int32_t *slot_of_row;
};

// output = silu(gate) * up * scale of the row.
struct swiglu_call {
    int64_t rows;
    int64_t columns;
    const element *gate;
    const element *up;
    row_scale scale;
    element *output;
};

// derivative: in, of the output; out, of up. d_scale, by slot: written for those that have a row.
struct swiglu_backward_call {
    int64_t rows;
    int64_t columns;
    const element *gate;
    const element *up;
    row_scale scale;
    element *derivative;
    element *d_gate;
    real *d_scale;
};

// The softmax of a token's logits over the experts that it goes to: gates[tokens, top_k].
struct gates_call {
    int64_t tokens, experts, top_k;
    const element *logits;  // [tokens, experts]
    const int32_t *expert_of_slot;
    real *gates;
};

struct gates_backward_call {
    int64_t tokens, experts, top_k;
    const real *gates;
    const real *d_gates;
    const int32_t *expert_of_slot;
    element *d_logits;  // all of it is written
};

// output[r] = source[token_of_row[r]].
struct gather_call {
    int64_t rows;
    int64_t width;
    const element *source;
    const int32_t *token_of_row;
    element *output;
};

// output[t] = plus[t] + the sum of source[row_of_slot[t, k]] over k, a row of -1 counting nothing. plus may be null.
struct combine_call {
    int64_t tokens, top_k, width;
    const element *source;
    const int32_t *row_of_slot;
    const element *plus;
    element *output;
};

// Logits become their derivatives by the sum of the tokens' cross-entropies times scale, which is added to *loss.
struct cross_entropy_call {
    batch_shape batch;
    int64_t columns;
    const uint8_t *tokens;  // as in embed_call
    element *logits;
    double scale;
    double *loss;
};

struct adamw_call {
    int64_t elements;
    element *weights;
    real *master;  // may be the weights themselves
    const real *gradients;
    real *first_moment;
    real *second_moment;
    int64_t step;  // from 1
    double learning_rate;
};

// Each of them, for what is the same for all.
#define EBB_STEP_CALLS(X)      \
    X(clear_call)              \
    X(fill_call)               \
    X(embed_call)              \
    X(embed_backward_call)     \
    X(norm_call)               \
    X(norm_backward_call)      \
    X(multiply_call)           \
    X(multiply_back_call)      \
    X(weight_gradient_call)    \
    X(attention_call)          \
    X(attention_backward_call) \
    X(swiglu_call)             \
    X(swiglu_backward_call)    \
    X(gates_call)              \
    X(gates_backward_call)     \
    X(gather_call)             \
    X(combine_call)            \
    X(cross_entropy_call)      \
    X(adamw_call)

class step_math {
public:
    step_math() = default;
    virtual ~step_math() = default;
    step_math(const step_math &) = delete;
    step_math &operator=(const step_math &) = delete;

    [[nodiscard]] virtual uint64_t element_bytes() const = 0;
    [[nodiscard]] virtual uint64_t real_bytes() const = 0;

#define EBB_STEP_RUN(call) virtual void run(const call &c) = 0;
    EBB_STEP_CALLS(EBB_STEP_RUN)
#undef EBB_STEP_RUN
};

}  // namespace step
