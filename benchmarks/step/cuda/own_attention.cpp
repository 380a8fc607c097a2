#include <algorithm>
#include <cmath>

#include "cuda_attention.hpp"
#include "cuda_calls.hpp"
#include "cuda_kernels.hpp"

namespace step {
namespace {

constexpr uint64_t k_element_bytes = 2;
// The scores of a block of queries take no more, and the block no more rows than that.
constexpr int64_t k_score_bytes = 256LL << 20U;
constexpr int64_t k_most_rows = 512;

int64_t rows_at_once(const attention_call &c) {
    constexpr int64_t k_multiple = 16;
    const int64_t row_bytes = c.heads * c.batch.length * static_cast<int64_t>(sizeof(float));
    const int64_t fitting = k_score_bytes / row_bytes / k_multiple * k_multiple;
    return std::clamp(fitting, k_multiple, k_most_rows);
}

// Consecutive pieces of the workspace.
class pieces {
public:
    explicit pieces(growing_memory &memory) : memory_(memory) {}

    // In two rounds: what is wanted, then where it is.
    void want(void **piece, int64_t count, uint64_t value_bytes) {
        constexpr uint64_t k_align = 512;
        wanted_.push_back({piece, total_bytes_});
        total_bytes_ += (static_cast<uint64_t>(count) * value_bytes + k_align - 1) / k_align * k_align;
    }
    void take() {
        auto *const base = static_cast<std::byte *>(memory_.at_least(total_bytes_));
        for (const auto &[piece, offset] : wanted_) {
            *piece = base + offset;
        }
    }

private:
    growing_memory &memory_;
    std::vector<std::pair<void **, uint64_t>> wanted_;
    uint64_t total_bytes_ = 0;
};

class own_attention final : public cuda_attention {
public:
    explicit own_attention(const attention_tools &tools) : tools_(tools) {}

    void run(const attention_call &c) override;
    void run(const attention_backward_call &c) override;

private:
    // The rows of one sequence that are worked on.
    struct block {
        const attention_call &c;
        int64_t sequence;
        attention_rows rows;
    };

    template <class function>
    void for_each_block(const attention_call &c, const function &f) const {
        for (int64_t sequence = 0; sequence < c.batch.sequences; ++sequence) {
            for (int64_t first = 0; first < c.batch.length; first += rows_at_once(c)) {
                const int64_t rows = std::min(rows_at_once(c), c.batch.length - first);
                f(block{c, sequence, {c.heads, first, rows, c.batch.length}});
            }
        }
    }

    void scores(const block &b, const void *left, const void *right, float factor, void *to);
    void weighted_sum(const block &b, const void *probabilities, const void *of, void *to);
    void add_to_keys(const block &b, const void *probabilities, const void *of, void *sum);
    void backward_block(const block &b, const attention_backward_call &c);
    void finish_sequence(const attention_backward_call &c, int64_t sequence);

    attention_tools tools_;
    // In the workspace. Of a block, [heads, rows, keys]; of a sequence, [length, width].
    void *scores_ = nullptr, *d_probabilities_ = nullptr, *probabilities_ = nullptr, *d_scores_ = nullptr;
    void *d_key_ = nullptr, *d_value_ = nullptr;
};

int64_t width_of(const attention_call &c) {
    return c.heads * c.head_width;
}

const void *offset_by(const void *array, int64_t values, uint64_t value_bytes) {
    return static_cast<const std::byte *>(array) + static_cast<uint64_t>(values) * value_bytes;
}

void *offset_by(void *array, int64_t values, uint64_t value_bytes) {
    return static_cast<std::byte *>(array) + static_cast<uint64_t>(values) * value_bytes;
}

// Rows of all heads of a [tokens, width] array, one head after the other.
template <class pointer>
matrix heads_of(const attention_call &c, pointer array, int64_t sequence, int64_t first_row, bool transposed) {
    const int64_t row = sequence * c.batch.length + first_row;
    return {offset_by(array, row * width_of(c), k_element_bytes), width_of(c), transposed, c.head_width};
}

// A block's scores or probabilities.
matrix block_of(const void *array, const attention_rows &rows, bool transposed) {
    return {array, rows.keys(), transposed, rows.rows * rows.keys()};
}

// [heads, rows, keys] = factor * left (the block's rows) * right^T (all keys), as floats.
void own_attention::scores(const block &b, const void *left, const void *right, float factor, void *to) {
    tools_.products->run(
        {b.rows.rows, b.rows.keys(), b.c.head_width, heads_of(b.c, left, b.sequence, b.rows.first, false),
         heads_of(b.c, right, b.sequence, 0, true), nullptr, block_of(to, b.rows, false), true, factor, b.c.heads});
}

// The block's rows of an array = probabilities (or their derivatives) * all keys' rows of another.
void own_attention::weighted_sum(const block &b, const void *probabilities, const void *of, void *to) {
    tools_.products->run({b.rows.rows, b.c.head_width, b.rows.keys(), block_of(probabilities, b.rows, false),
                          heads_of(b.c, of, b.sequence, 0, false), nullptr,
                          heads_of(b.c, to, b.sequence, b.rows.first, false), false, 1, b.c.heads});
}

// What the block's queries add to the keys and values of all that they see.
void own_attention::add_to_keys(const block &b, const void *probabilities, const void *of, void *sum) {
    tools_.products->run({b.rows.keys(),
                          b.c.head_width,
                          b.rows.rows,
                          block_of(probabilities, b.rows, true),
                          heads_of(b.c, of, b.sequence, b.rows.first, false),
                          sum,
                          {sum, width_of(b.c), false, b.c.head_width},
                          true,
                          1,
                          b.c.heads});
}

float scale_of(const attention_call &c) {
    return 1.0F / std::sqrt(static_cast<float>(c.head_width));
}

float *log_sum_of(const attention_call &c, int64_t sequence) {
    return c.log_sum == nullptr ? nullptr : static_cast<float *>(c.log_sum) + sequence * c.heads * c.batch.length;
}

void own_attention::run(const attention_call &c) {
    const int64_t count = c.heads * rows_at_once(c) * c.batch.length;
    pieces from(*tools_.workspace);
    from.want(&scores_, count, sizeof(float));
    from.want(&probabilities_, count, k_element_bytes);
    from.take();
    for_each_block(c, [&](const block &b) {
        scores(b, c.query, c.key, scale_of(c), scores_);
        launch_softmax(b.rows, static_cast<float *>(scores_), probabilities_, log_sum_of(c, b.sequence), tools_.stream);
        if (c.context != nullptr) {
            weighted_sum(b, probabilities_, c.value, c.context);
        }
    });
    check(cudaGetLastError(), "attention");
}

void own_attention::run(const attention_backward_call &c) {
    const attention_call &f = c.forward;
    const int64_t count = f.heads * rows_at_once(f) * f.batch.length;
    const int64_t of_sequence = f.batch.length * width_of(f);
    pieces from(*tools_.workspace);
    from.want(&scores_, count, sizeof(float));
    from.want(&d_probabilities_, count, sizeof(float));
    from.want(&probabilities_, count, k_element_bytes);
    from.want(&d_scores_, count, k_element_bytes);
    from.want(&d_key_, of_sequence, sizeof(float));
    from.want(&d_value_, of_sequence, sizeof(float));
    from.take();
    for_each_block(f, [&](const block &b) {
        if (b.rows.first == 0) {
            for (void *const sum : {d_key_, d_value_}) {
                check(cudaMemsetAsync(sum, 0, static_cast<uint64_t>(of_sequence) * sizeof(float), tools_.stream),
                      "cudaMemsetAsync");
            }
        }
        backward_block(b, c);
        if (b.rows.keys() == f.batch.length) {
            finish_sequence(c, b.sequence);
        }
    });
    check(cudaGetLastError(), "attention backward");
}

void own_attention::backward_block(const block &b, const attention_backward_call &c) {
    const attention_call &f = b.c;
    scores(b, f.query, f.key, scale_of(f), scores_);
    scores(b, c.d_context, f.value, 1, d_probabilities_);
    const int64_t first = b.sequence * f.batch.length * width_of(f);
    launch_softmax_backward(
        {b.rows, f.head_width, scale_of(f), static_cast<float *>(scores_), static_cast<float *>(d_probabilities_),
         log_sum_of(f, b.sequence), offset_by(static_cast<const void *>(f.context), first, k_element_bytes),
         offset_by(c.d_context, first, k_element_bytes), probabilities_, d_scores_},
        tools_.stream);
    add_to_keys(b, probabilities_, c.d_context, d_value_);
    add_to_keys(b, d_scores_, f.query, d_key_);
    weighted_sum(b, d_scores_, f.key, c.d_query);
}

void own_attention::finish_sequence(const attention_backward_call &c, int64_t sequence) {
    const int64_t count = c.forward.batch.length * width_of(c.forward);
    launch_to_elements(static_cast<float *>(d_key_), offset_by(c.d_key, sequence * count, k_element_bytes), count,
                       tools_.stream);
    launch_to_elements(static_cast<float *>(d_value_), offset_by(c.d_value, sequence * count, k_element_bytes), count,
                       tools_.stream);
}

}  // namespace

std::unique_ptr<cuda_attention> make_own_attention(const attention_tools &tools) {
    return std::make_unique<own_attention>(tools);
}

}  // namespace step
