// The kernels of the operations that no library has. Elements are bf16, reals are float; widths, and the columns of
// arrays that are gone through as a whole, are multiples of 8. Each enqueues; launch errors come from cudaGetLastError.
//
// None adds with atomics: sums over rows go through partial sums in `scratch`, in an order that follows from the sizes.
#pragma once

#include <cuda_runtime_api.h>

#include "../step_math.hpp"

namespace step {

void launch(const fill_call &c, cudaStream_t stream);
void launch(const embed_call &c, cudaStream_t stream);
void launch(const embed_backward_call &c, cudaStream_t stream);
void launch(const norm_call &c, cudaStream_t stream);
void launch(const swiglu_call &c, cudaStream_t stream);
void launch(const swiglu_backward_call &c, cudaStream_t stream);
void launch(const gates_call &c, cudaStream_t stream);
// All of d_logits is zero.
void launch(const gates_backward_call &c, cudaStream_t stream);
void launch(const gather_call &c, cudaStream_t stream);
void launch(const combine_call &c, cudaStream_t stream);
void launch(const adamw_call &c, cudaStream_t stream);

uint64_t scratch_bytes(const norm_backward_call &c);
uint64_t scratch_bytes(const cross_entropy_call &c);
void launch(const norm_backward_call &c, void *scratch, cudaStream_t stream);
void launch(const cross_entropy_call &c, void *scratch, cudaStream_t stream);

// ------------------------------------------------------------------------------------------------ own attention --

// Some rows of a sequence's attention, of all heads: queries [first, first + rows) over keys [0, first + rows).
struct attention_rows {
    int64_t heads;
    int64_t first;
    int64_t rows;
    int64_t length;  // of the sequence

    [[nodiscard]] int64_t keys() const { return first + rows; }
};

// probabilities[heads, rows, keys] (element) = softmax of scores (float, scaled), nothing for keys beyond a query's
// own. log_sum: [heads, length] of the sequence; null: not wanted.
void launch_softmax(const attention_rows &r, const float *scores, void *probabilities, float *log_sum,
                    cudaStream_t stream);
// The same from log_sum; and d_scores (element) = probabilities * (d_probabilities - along) * scale, with along =
// d_context . context of that row and head. Both are [length, heads * head_width] of the sequence.
struct softmax_backward {
    attention_rows at;
    int64_t head_width;
    float scale;
    const float *scores;
    const float *d_probabilities;
    const float *log_sum;
    const void *context;
    const void *d_context;
    void *probabilities;
    void *d_scores;
};
void launch_softmax_backward(const softmax_backward &b, cudaStream_t stream);
void launch_to_elements(const float *from, void *to, int64_t count, cudaStream_t stream);

}  // namespace step
