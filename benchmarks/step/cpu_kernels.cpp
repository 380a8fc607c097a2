#include "cpu_kernels.hpp"

#include <cstring>

#include "random_values.hpp"
#include "tensor_blocks.hpp"

namespace step {
namespace {

using train::const_row;
using train::row;

template <class scalar>
const scalar *in(const void *array) {
    return static_cast<const scalar *>(array);
}

template <class scalar>
scalar *out(void *array) {
    return static_cast<scalar *>(array);
}

template <class scalar>
const_row<scalar> row_of(const void *array, int64_t index, int64_t width) {
    return const_row<scalar>(in<scalar>(array) + index * width, width);
}

template <class scalar>
row<scalar> row_of(void *array, int64_t index, int64_t width) {
    return row<scalar>(out<scalar>(array) + index * width, width);
}

template <class scalar>
void copy_or_clear(const void *from, void *to, int64_t elements) {
    if (from == nullptr) {
        std::fill_n(out<scalar>(to), elements, scalar(0));
    } else if (from != to) {
        std::copy_n(in<scalar>(from), elements, out<scalar>(to));
    }
}

template <class scalar>
scalar scale_of(const row_scale &scale, int64_t r) {
    return scale.values == nullptr ? scalar(1) : in<scalar>(scale.values)[scale.slot_of_row[r]];
}

// One head of one sequence. The building block takes what it only reads as if it could be written.
template <class scalar>
train::attention_head<scalar> head_at(const attention_call &c, int64_t sequence, int64_t head) {
    const int64_t width = c.heads * c.head_width;
    const int64_t offset = sequence * c.batch.length * width + head * c.head_width;
    const auto of = [&](const void *array) {
        scalar *const first = array == nullptr ? nullptr : const_cast<scalar *>(in<scalar>(array)) + offset;
        return train::head_of(first, c.batch.length, width, c.head_width);
    };
    scalar *const log_sum =
        c.log_sum == nullptr ? nullptr : out<scalar>(c.log_sum) + (sequence * c.heads + head) * c.batch.length;
    return {of(c.query), of(c.key), of(c.value), of(c.context), log_sum, 1};
}

template <class scalar, class function>
void for_each_head(const attention_call &c, const function &f) {
    // Aligned by Eigen: which instructions it takes, and so how sums are rounded, depends on that.
    Eigen::Array<scalar, Eigen::Dynamic, 1> memory(train::attention_memory(c.batch.length));
    for (int64_t sequence = 0; sequence < c.batch.sequences; ++sequence) {
        for (int64_t head = 0; head < c.heads; ++head) {
            f(sequence, head, memory.data());
        }
    }
}

}  // namespace

template <class scalar>
void compute(const clear_call &c) {
    std::memset(c.memory, 0, c.size_bytes);
}

template <class scalar>
void compute(const fill_call &c) {
    for (int64_t i = 0; i < c.elements; ++i) {
        const double unit = random_unit(c.seed, static_cast<uint64_t>(i));
        out<scalar>(c.master)[i] = static_cast<scalar>(c.middle + (unit - 0.5) * c.range);
    }
    copy_or_clear<scalar>(c.master, c.weights, c.elements);
}

template <class scalar>
void compute(const embed_call &c) {
    for (int64_t t = 0; t < c.batch.tokens(); ++t) {
        const int64_t position = t % c.batch.length;
        const int64_t token = c.tokens[t / c.batch.length * (c.batch.length + 1) + position];
        row_of<scalar>(c.output, t, c.width) =
            row_of<scalar>(c.token_embedding, token, c.width) + row_of<scalar>(c.position_embedding, position, c.width);
    }
}

template <class scalar>
void compute(const embed_backward_call &c) {
    for (int64_t t = 0; t < c.batch.tokens(); ++t) {
        const int64_t position = t % c.batch.length;
        const int64_t token = c.tokens[t / c.batch.length * (c.batch.length + 1) + position];
        const const_row<scalar> d = row_of<scalar>(c.derivative, t, c.width);
        row_of<scalar>(c.token_gradient, token, c.width) += d;
        row_of<scalar>(c.position_gradient, position, c.width) += d;
    }
}

template <class scalar>
void compute(const norm_call &c) {
    const scalar *input = in<scalar>(c.input);
    if (c.plus != nullptr) {
        // Without a place for the sum it passes through the output.
        scalar *const sum = out<scalar>(c.sum != nullptr ? c.sum : c.output);
        train::add_into(sum, input, in<scalar>(c.plus), c.rows * c.width);
        input = sum;
    }
    train::norm(input, in<scalar>(c.weight), out<scalar>(c.output), c.rows, c.width);
}

template <class scalar>
void compute(const norm_backward_call &c) {
    train::norm_backward(in<scalar>(c.input), in<scalar>(c.weight), in<scalar>(c.upstream),
                         out<scalar>(c.weight_gradient), out<scalar>(c.derivative), c.rows, c.width);
}

template <class scalar>
void compute(const multiply_call &c) {
    copy_or_clear<scalar>(c.plus, c.output, c.rows * c.columns);
    train::view<scalar>(out<scalar>(c.output), c.rows, c.columns).noalias() +=
        train::const_view<scalar>(in<scalar>(c.left), c.rows, c.inner) *
        train::const_view<scalar>(in<scalar>(c.right), c.inner, c.columns);
}

template <class scalar>
void compute(const multiply_back_call &c) {
    copy_or_clear<scalar>(c.plus, c.output, c.rows * c.inner);
    train::multiply_back(in<scalar>(c.left), in<scalar>(c.right), out<scalar>(c.output), c.rows, c.inner, c.columns,
                         true);
}

template <class scalar>
void compute(const weight_gradient_call &c) {
    train::add_weight_gradient(in<scalar>(c.input), in<scalar>(c.upstream), out<scalar>(c.gradient), c.rows, c.inner,
                               c.columns);
}

template <class scalar>
void compute(const attention_call &c) {
    for_each_head<scalar>(c, [&](int64_t sequence, int64_t head, scalar *memory) {
        train::attend_head(head_at<scalar>(c, sequence, head), memory);
    });
}

template <class scalar>
void compute(const attention_backward_call &c) {
    const attention_call &f = c.forward;
    attention_call d = f;  // with the derivatives in the places of what they are of
    d.context = const_cast<void *>(c.d_context);
    d.query = c.d_query;
    d.key = c.d_key;
    d.value = c.d_value;
    for_each_head<scalar>(f, [&](int64_t sequence, int64_t head, scalar *memory) {
        const train::attention_head<scalar> of = head_at<scalar>(d, sequence, head);
        train::attend_head_backward(head_at<scalar>(f, sequence, head), {of.context, of.query, of.key, of.value},
                                    memory);
    });
}

template <class scalar>
void compute(const swiglu_call &c) {
    train::swiglu(in<scalar>(c.gate), in<scalar>(c.up), out<scalar>(c.output), c.rows * c.columns);
    if (c.scale.values != nullptr) {
        for (int64_t r = 0; r < c.rows; ++r) {
            row_of<scalar>(c.output, r, c.columns) *= scale_of<scalar>(c.scale, r);
        }
    }
}

template <class scalar>
void compute(const swiglu_backward_call &c) {
    if (c.scale.values != nullptr) {
        for (int64_t r = 0; r < c.rows; ++r) {
            // d_gate serves as memory for the activated row.
            row<scalar> activated = row_of<scalar>(c.d_gate, r, c.columns);
            const const_row<scalar> gate = row_of<scalar>(c.gate, r, c.columns);
            const const_row<scalar> up = row_of<scalar>(c.up, r, c.columns);
            train::swiglu(gate.data(), up.data(), activated.data(), c.columns);
            row<scalar> d = row_of<scalar>(c.derivative, r, c.columns);
            out<scalar>(c.d_scale)[c.scale.slot_of_row[r]] = (d * activated).sum();
            d *= scale_of<scalar>(c.scale, r);
        }
    }
    train::swiglu_backward(in<scalar>(c.gate), in<scalar>(c.up), out<scalar>(c.d_gate), out<scalar>(c.derivative),
                           c.rows * c.columns);
}

template <class scalar>
void compute(const gates_call &c) {
    for (int64_t t = 0; t < c.tokens; ++t) {
        const scalar *const logits = in<scalar>(c.logits) + t * c.experts;
        const int32_t *const expert = c.expert_of_slot + t * c.top_k;
        row<scalar> gates = row_of<scalar>(c.gates, t, c.top_k);
        for (int64_t k = 0; k < c.top_k; ++k) {
            gates[k] = logits[expert[k]];
        }
        gates = (gates - gates.maxCoeff()).exp();
        gates /= gates.sum();
    }
}

template <class scalar>
void compute(const gates_backward_call &c) {
    copy_or_clear<scalar>(nullptr, c.d_logits, c.tokens * c.experts);
    for (int64_t t = 0; t < c.tokens; ++t) {
        const const_row<scalar> gates = row_of<scalar>(c.gates, t, c.top_k);
        const const_row<scalar> d_gates = row_of<scalar>(c.d_gates, t, c.top_k);
        const scalar along = (gates * d_gates).sum();
        for (int64_t k = 0; k < c.top_k; ++k) {
            const int32_t expert = c.expert_of_slot[t * c.top_k + k];
            out<scalar>(c.d_logits)[t * c.experts + expert] = gates[k] * (d_gates[k] - along);
        }
    }
}

template <class scalar>
void compute(const gather_call &c) {
    for (int64_t r = 0; r < c.rows; ++r) {
        row_of<scalar>(c.output, r, c.width) = row_of<scalar>(c.source, c.token_of_row[r], c.width);
    }
}

template <class scalar>
void compute(const combine_call &c) {
    copy_or_clear<scalar>(c.plus, c.output, c.tokens * c.width);
    for (int64_t slot = 0; slot < c.tokens * c.top_k; ++slot) {
        if (c.row_of_slot[slot] >= 0) {
            row_of<scalar>(c.output, slot / c.top_k, c.width) += row_of<scalar>(c.source, c.row_of_slot[slot], c.width);
        }
    }
}

template <class scalar>
void compute(const cross_entropy_call &c) {
    double loss = 0;
    for (int64_t s = 0; s < c.batch.sequences; ++s) {
        loss += train::cross_entropy(out<scalar>(c.logits) + s * c.batch.length * c.columns,
                                     c.tokens + s * (c.batch.length + 1) + 1, c.scale, c.batch.length, c.columns);
    }
    *c.loss += loss * c.scale;
}

template <class scalar>
void compute(const adamw_call &c) {
    train::adamw_update(train::adamw_step(c.step, c.learning_rate), in<scalar>(c.gradients), out<scalar>(c.master),
                        out<scalar>(c.first_moment), out<scalar>(c.second_moment), c.elements);
    copy_or_clear<scalar>(c.master, c.weights, c.elements);
}

#define EBB_STEP_INSTANTIATE(call)               \
    template void compute<float>(const call &c); \
    template void compute<double>(const call &c);
EBB_STEP_CALLS(EBB_STEP_INSTANTIATE)

}  // namespace step
