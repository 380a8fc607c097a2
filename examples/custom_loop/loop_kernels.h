/* The arithmetic of the loop: what each kernel does for one element of its result. Written in what C, C++ and CUDA have
 * in common, so that every device computes with this text. Each element is computed by one thread, which adds in a
 * fixed order: a kernel gives the same bits whenever it runs. None calls Ebb.
 */
#ifndef LOOP_KERNELS_H
#define LOOP_KERNELS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define LOOP_FUNCTION static inline __host__ __device__
#else
#define LOOP_FUNCTION static inline
#endif

enum { k_rows = 64, k_width = 128, k_micro_batches = 2 };
#define ACTIVATION_FLOATS ((size_t)k_rows * k_width)
#define WEIGHT_FLOATS ((size_t)k_width * k_width)

typedef enum kernel {
    k_fill_weights,
    k_make_batch,
    k_linear,
    k_activate,
    k_squared_loss,
    k_activate_backward,
    k_weight_gradient,
    k_input_gradient,
    k_descend
} kernel;

/* Device memory, but for the seed. */
typedef struct kernel_args {
    const float *input, *weights, *upstream;
    float *output, *gradient;
    double *row_losses; /* k_rows of them */
    uint64_t seed;
} kernel_args;

/* The at-th number of a sequence, in [-1, 1): splitmix64. */
LOOP_FUNCTION float random_uniform(uint64_t seed, size_t at) {
    uint64_t z = seed + (at + 1) * 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    z = z ^ (z >> 31U);
    return (float)((double)(z >> 11U) / 4503599627370496.0 - 1.0); /* 2 to the 52nd */
}

/* output: the weights; gradient = 0 */
LOOP_FUNCTION void fill_weights(const kernel_args *a, size_t at) {
    a->output[at] = sqrtf(3.0F / (float)k_width) * random_uniform(a->seed, at);
    a->gradient[at] = 0;
}

LOOP_FUNCTION void make_batch(const kernel_args *a, size_t at) {
    a->output[at] = random_uniform(a->seed, at);
}

/* output = input * weights */
LOOP_FUNCTION void linear(const kernel_args *a, size_t at) {
    const float *const row = a->input + at / k_width * k_width;
    const float *const column = a->weights + at % k_width;
    float sum = 0;
    for (size_t i = 0; i < k_width; ++i) {
        sum += row[i] * column[i * k_width];
    }
    a->output[at] = sum;
}

LOOP_FUNCTION void activate(const kernel_args *a, size_t at) {
    a->output[at] = tanhf(a->input[at]);
}

/* For one row, squared distance from the sines of the batch (upstream); output: its derivative. */
LOOP_FUNCTION void squared_loss(const kernel_args *a, size_t row) {
    double sum = 0;
    for (size_t i = row * k_width; i < (row + 1) * k_width; ++i) {
        const float error = a->input[i] - 0.5F * sinf(3.0F * a->upstream[i]);
        sum += (double)error * (double)error;
        a->output[i] = error / (float)(k_rows * k_micro_batches);
    }
    a->row_losses[row] = sum / ((double)ACTIVATION_FLOATS * k_micro_batches);
}

/* output = upstream * tanh'(input) */
LOOP_FUNCTION void activate_backward(const kernel_args *a, size_t at) {
    const float t = tanhf(a->input[at]);
    a->output[at] = a->upstream[at] * (1.0F - t * t);
}

/* gradient += input^T * upstream */
LOOP_FUNCTION void weight_gradient(const kernel_args *a, size_t at) {
    const float *const input = a->input + at / k_width;
    const float *const upstream = a->upstream + at % k_width;
    float sum = a->gradient[at];
    for (size_t row = 0; row < k_rows; ++row) {
        sum += input[row * k_width] * upstream[row * k_width];
    }
    a->gradient[at] = sum;
}

/* output = upstream * weights^T */
LOOP_FUNCTION void input_gradient(const kernel_args *a, size_t at) {
    const float *const upstream = a->upstream + at / k_width * k_width;
    const float *const weights = a->weights + at % k_width * k_width;
    float sum = 0;
    for (size_t j = 0; j < k_width; ++j) {
        sum += upstream[j] * weights[j];
    }
    a->output[at] = sum;
}

/* output: weights -= rate * gradient; gradient = 0 */
LOOP_FUNCTION void descend(const kernel_args *a, size_t at) {
    const float learning_rate = 0.05F;
    a->output[at] -= learning_rate * a->gradient[at];
    a->gradient[at] = 0;
}

LOOP_FUNCTION size_t elements_of(kernel which) {
    switch (which) {
        case k_fill_weights:
        case k_weight_gradient:
        case k_descend:
            return WEIGHT_FLOATS;
        case k_squared_loss:
            return k_rows;
        default:
            return ACTIVATION_FLOATS;
    }
}

LOOP_FUNCTION void run_element(kernel which, const kernel_args *a, size_t at) {
    switch (which) {
        case k_fill_weights:
            fill_weights(a, at);
            break;
        case k_make_batch:
            make_batch(a, at);
            break;
        case k_linear:
            linear(a, at);
            break;
        case k_activate:
            activate(a, at);
            break;
        case k_squared_loss:
            squared_loss(a, at);
            break;
        case k_activate_backward:
            activate_backward(a, at);
            break;
        case k_weight_gradient:
            weight_gradient(a, at);
            break;
        case k_input_gradient:
            input_gradient(a, at);
            break;
        case k_descend:
            descend(a, at);
            break;
    }
}

#endif
