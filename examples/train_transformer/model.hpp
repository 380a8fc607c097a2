// Where each weight lies. All weights are one flat array, so that the optimizer is one
// loop and weights, gradients and both moments share one layout.
#pragma once

#include <cstdint>

#include "model_shape.hpp"

namespace train {

constexpr int64_t k_weight_align = 128;  // weights start at multiples of this many elements (512 bytes of float)

// A weight is [in, out], row-major; a norm is [width].
template <class scalar>
struct layer_weights {
    scalar *attention_norm, *query, *key, *value, *out;
    scalar *mlp_norm, *gate, *up, *down;
};

template <class scalar>
struct model_weights {
    scalar *token_embedding;     // [vocabulary, width]
    scalar *position_embedding;  // [sequence, width]
    scalar *final_norm;          // [width]
    scalar *head;                // [width, vocabulary]
};

// Hands out consecutive pieces of an array; also used for the kernels' workspace. With a null base it only counts.
template <class scalar>
class carver {
public:
    explicit carver(scalar *base) : base_(base) {}

    scalar *take(int64_t elements) {
        scalar *piece = base_ == nullptr ? nullptr : base_ + used_;
        used_ += (elements + k_weight_align - 1) / k_weight_align * k_weight_align;
        return piece;
    }
    [[nodiscard]] int64_t used() const { return used_; }

private:
    scalar *base_;
    int64_t used_ = 0;
};

template <class scalar>
model_weights<scalar> carve_outer(carver<scalar> &from, const model_shape &shape) {
    model_weights<scalar> w{};
    w.token_embedding = from.take(k_vocabulary * shape.width);
    w.position_embedding = from.take(shape.sequence * shape.width);
    w.final_norm = from.take(shape.width);
    w.head = from.take(shape.width * k_vocabulary);
    return w;
}

template <class scalar>
layer_weights<scalar> carve_layer(carver<scalar> &from, const model_shape &shape) {
    const int64_t square = shape.width * shape.width;
    const int64_t wide = shape.width * shape.ffn;
    layer_weights<scalar> w{};
    w.attention_norm = from.take(shape.width);
    w.query = from.take(square);
    w.key = from.take(square);
    w.value = from.take(square);
    w.out = from.take(square);
    w.mlp_norm = from.take(shape.width);
    w.gate = from.take(wide);
    w.up = from.take(wide);
    w.down = from.take(wide);
    return w;
}

template <class scalar>
model_weights<scalar> outer_weights(scalar *base, const model_shape &shape) {
    carver<scalar> from(base);
    return carve_outer(from, shape);
}

template <class scalar>
layer_weights<scalar> weights_of_layer(scalar *base, const model_shape &shape, int64_t layer) {
    carver<scalar> counter(nullptr);
    carve_outer(counter, shape);
    const int64_t outer = counter.used();
    carve_layer(counter, shape);
    carver<scalar> from(base + outer + layer * (counter.used() - outer));
    return carve_layer(from, shape);
}

inline int64_t weight_elements(const model_shape &shape) {
    carver<float> counter(nullptr);
    carve_outer(counter, shape);
    const int64_t outer = counter.used();
    carve_layer(counter, shape);
    return outer + shape.layers * (counter.used() - outer);
}

}  // namespace train
