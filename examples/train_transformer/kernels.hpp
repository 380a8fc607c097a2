// The functions that run on the compute stream: forward and backward of every part of the model, written out.
//
// Each works sequence by sequence, so that what it needs in between fits the cache and one small workspace
// serves them all; weight gradients are added up in the order of the sequences. None allocates memory that
// it keeps, and none looks at a clock or a thread: the same arguments give the same bits.
// Instantiated for float (training) and double (the gradient test).
#pragma once

#include <cstdint>

#include "model.hpp"

namespace train {

// Everything a layer saves for its backward pass. A null pointer as output means: not wanted.
template <class scalar>
struct layer_tensors {
    scalar *input;           // [tokens, width]
    scalar *query;           // [tokens, width]
    scalar *key;             // [tokens, width]
    scalar *value;           // [tokens, width]
    scalar *context;         // [tokens, width]: attention before the output projection
    scalar *log_sum;         // [tokens, heads]: the softmax's logarithm of the sum, instead of its probabilities
    scalar *out_projection;  // [tokens, width]: what attention adds to the residual
    scalar *gate;            // [tokens, ffn], before the activation function
    scalar *up;              // [tokens, ffn]
};

template <class scalar>
struct layer_args {
    model_shape shape;
    layer_weights<scalar> weights;
    layer_weights<scalar> gradients;
    layer_tensors<scalar> saved;
    scalar *output;      // forward: the next layer's input; may be null
    scalar *derivative;  // backward, [tokens, width]: of the loss by output, then by input, in place
    scalar *workspace;
};

template <class scalar>
struct embed_args {
    model_shape shape;
    model_weights<scalar> weights;    // forward
    model_weights<scalar> gradients;  // backward
    const uint8_t *tokens;            // [micro_batch, sequence + 1]
    scalar *hidden;                   // forward: output; backward: derivative
};

template <class scalar>
struct head_args {
    model_shape shape;
    model_weights<scalar> weights;
    model_weights<scalar> gradients;
    const uint8_t *tokens;
    const scalar *hidden;  // input of the final norm
    scalar *derivative;    // by it
    double scale;          // the loss added to *loss, and its gradients, are sums over tokens times this
    double *loss;
    scalar *workspace;
};

template <class scalar>
struct adamw_args {
    int64_t elements;
    scalar *weights;
    const scalar *gradients;
    scalar *first_moment;
    scalar *second_moment;
    int64_t step;  // from 1
    double learning_rate;
};

template <class scalar>
struct initialise_args {
    model_shape shape;
    scalar *weights;
    uint64_t seed;
};

// Elements of workspace that the kernels below need.
int64_t workspace_elements(const model_shape &shape);

template <class scalar>
void initialise(const initialise_args<scalar> &args);

template <class scalar>
void embed(const embed_args<scalar> &args);
template <class scalar>
void embed_backward(const embed_args<scalar> &args);

// Forward of a layer, in this order: project, attend, project_out, mlp.
template <class scalar>
void project(const layer_args<scalar> &args);
template <class scalar>
void attend(const layer_args<scalar> &args);
template <class scalar>
void project_out(const layer_args<scalar> &args);
template <class scalar>
void mlp(const layer_args<scalar> &args);

// Backward, in this order. The first reads input, out_projection, gate and up; the second the others and input.
template <class scalar>
void mlp_backward(const layer_args<scalar> &args);
template <class scalar>
void attention_backward(const layer_args<scalar> &args);

// Final norm, output head and cross-entropy, forward and backward in one go: logits are never saved.
template <class scalar>
void head_loss(const head_args<scalar> &args);

template <class scalar>
void adamw(const adamw_args<scalar> &args);

}  // namespace train
