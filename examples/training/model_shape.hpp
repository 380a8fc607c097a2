// The sizes of a decoder-only transformer.
#pragma once

#include <cstdint>

namespace train {

constexpr int64_t k_vocabulary = 256;  // byte tokens

struct model_shape {
    int64_t layers = 0;
    int64_t width = 0;
    int64_t heads = 0;
    int64_t ffn = 0;
    int64_t sequence = 0;
    int64_t micro_batch = 0;  // sequences

    [[nodiscard]] int64_t head_width() const { return width / heads; }
    [[nodiscard]] int64_t tokens() const { return micro_batch * sequence; }
    // One [tokens, width] and one [tokens, ffn] array, in elements.
    [[nodiscard]] int64_t hidden_elements() const { return tokens() * width; }
    [[nodiscard]] int64_t ffn_elements() const { return tokens() * ffn; }
    [[nodiscard]] int64_t row_sum_elements() const { return tokens() * heads; }
};

}  // namespace train
