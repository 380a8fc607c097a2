#include "step_shape.hpp"

#include <algorithm>
#include <cmath>

namespace step {
namespace {

class offset_counter {
public:
    explicit offset_counter(int64_t first) : next_(first) {}

    int64_t take(int64_t elements) {
        const int64_t offset = next_;
        next_ += (elements + k_weight_align - 1) / k_weight_align * k_weight_align;
        return offset;
    }
    [[nodiscard]] int64_t next() const { return next_; }

private:
    int64_t next_;
};

layer_offsets layer_from(const step_shape &shape, int64_t first) {
    const int64_t square = shape.width * shape.width;
    const int64_t wide = wide_elements(shape) * std::max<int64_t>(shape.experts, 1);
    offset_counter from(first);
    layer_offsets o;
    o.begin = first;
    o.attention_norm = from.take(shape.width);
    o.query = from.take(square);
    o.key = from.take(square);
    o.value = from.take(square);
    o.out = from.take(square);
    o.mlp_norm = from.take(shape.width);
    o.router = from.take(shape.width * shape.experts);
    o.gate = from.take(wide);
    o.up = from.take(wide);
    o.down = from.take(wide);
    o.end = from.next();
    return o;
}

}  // namespace

int64_t step_shape::expert_capacity() const {
    const double even = static_cast<double>(slots()) / static_cast<double>(experts);
    return std::min(tokens(), static_cast<int64_t>(std::ceil(even * capacity_factor)));
}

int64_t step_shape::most_ffn_rows() const {
    return has_experts() ? std::min(slots(), experts * expert_capacity()) : tokens();
}

model_offsets offsets_of(const step_shape &shape) {
    offset_counter from(0);
    model_offsets o;
    o.token_embedding = from.take(train::k_vocabulary * shape.width);
    o.position_embedding = from.take(shape.sequence * shape.width);
    o.final_norm = from.take(shape.width);
    o.head = from.take(shape.width * train::k_vocabulary);
    o.layers = from.next();
    o.end = o.layers + shape.layers * layer_from(shape, 0).end;
    return o;
}

layer_offsets offsets_of_layer(const step_shape &shape, int64_t layer) {
    return layer_from(shape, offsets_of(shape).layers + layer * layer_from(shape, 0).end);
}

}  // namespace step
