/* A training loop of one's own on Ebb, in C, with nothing but ebb/ebb.h.
 *
 * A deep multilayer perceptron (linear, tanh, linear, tanh, ...) learns a function of its input by gradient descent,
 * two micro-batches per step. Each layer saves two activations for its backward pass:
 *
 *     linear      what the matrix product gives: left to the policy
 *     activated   its tanh, the next layer's input: in every other layer left to the policy, in the rest declared as
 *                 something to compute again from `linear`
 *
 * The program trains twice from the same weights, once keeping everything on the device and once offloading under a
 * device budget of a few activations. What is computed must not depend on that: it ends with status 1 if one loss
 * differs in one bit.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ebb/ebb.h"

enum {
    k_layers = 12,
    k_rows = 64,
    k_width = 128,
    k_micro_batches = 2,
    k_default_steps = 8,
    k_largest_step_count = 100000
};
#define ACTIVATION_FLOATS ((size_t)k_rows * k_width)
#define WEIGHT_FLOATS ((size_t)k_width * k_width)
#define ACTIVATION_BYTES (ACTIVATION_FLOATS * sizeof(float))
static const float k_learning_rate = 0.05F;

/* ---- kernels: run on the compute stream; none calls Ebb ---- */

typedef struct kernel_args {
    const float *input, *weights, *upstream;
    float *output, *gradient;
    double *loss;
    uint64_t seed;
} kernel_args;

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
    uint64_t z = (*state += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
}

static float next_uniform(uint64_t *state) { /* in [-1, 1) */
    return (float)((double)(next_random(state) >> 11U) * 0x1p-52 - 1.0);
}

static void fill_weights(void *memory) {
    const kernel_args *a = memory;
    uint64_t state = a->seed;
    const float range = sqrtf(3.0F / (float)k_width);
    for (size_t i = 0; i < WEIGHT_FLOATS; ++i) {
        a->output[i] = range * next_uniform(&state);
    }
}

static void make_batch(void *memory) {
    const kernel_args *a = memory;
    uint64_t state = a->seed;
    for (size_t i = 0; i < ACTIVATION_FLOATS; ++i) {
        a->output[i] = next_uniform(&state);
    }
}

/* output[row] = input[row] * weights */
static void linear(void *memory) {
    const kernel_args *a = memory;
    for (size_t row = 0; row < k_rows; ++row) {
        float *out = a->output + row * k_width;
        memset(out, 0, k_width * sizeof(float));
        for (size_t i = 0; i < k_width; ++i) {
            const float x = a->input[row * k_width + i];
            for (size_t j = 0; j < k_width; ++j) {
                out[j] += x * a->weights[i * k_width + j];
            }
        }
    }
}

static void activate(void *memory) {
    const kernel_args *a = memory;
    for (size_t i = 0; i < ACTIVATION_FLOATS; ++i) {
        a->output[i] = tanhf(a->input[i]);
    }
}

/* Squared distance from the sines of the batch; output: its derivative. */
static void squared_loss(void *memory) {
    const kernel_args *a = memory;
    const double scale = 1.0 / ((double)ACTIVATION_FLOATS * k_micro_batches);
    double sum = 0;
    for (size_t i = 0; i < ACTIVATION_FLOATS; ++i) {
        const float error = a->input[i] - 0.5F * sinf(3.0F * a->upstream[i]);
        sum += (double)error * (double)error;
        a->output[i] = error / (float)(k_rows * k_micro_batches);
    }
    *a->loss += sum * scale;
}

/* output = upstream * tanh'(input) */
static void activate_backward(void *memory) {
    const kernel_args *a = memory;
    for (size_t i = 0; i < ACTIVATION_FLOATS; ++i) {
        const float t = tanhf(a->input[i]);
        a->output[i] = a->upstream[i] * (1.0F - t * t);
    }
}

/* gradient += input^T * upstream; output = upstream * weights^T */
static void linear_backward(void *memory) {
    const kernel_args *a = memory;
    for (size_t row = 0; row < k_rows; ++row) {
        const float *up = a->upstream + row * k_width;
        for (size_t i = 0; i < k_width; ++i) {
            const float x = a->input[row * k_width + i];
            float sum = 0;
            for (size_t j = 0; j < k_width; ++j) {
                a->gradient[i * k_width + j] += x * up[j];
                sum += up[j] * a->weights[i * k_width + j];
            }
            a->output[row * k_width + i] = sum;
        }
    }
}

/* weights -= rate * gradient; gradient = 0 */
static void descend(void *memory) {
    const kernel_args *a = memory;
    for (size_t i = 0; i < WEIGHT_FLOATS; ++i) {
        a->output[i] -= k_learning_rate * a->gradient[i];
        a->gradient[i] = 0;
    }
}

/* ---- the loop's own state ---- */

enum { k_calls_per_step = k_micro_batches * (6 * k_layers + 4) + k_layers };

/* Device memory with two owners at most: the forward pass, and Ebb until its deleter runs. */
typedef struct buffer {
    ebb_runtime *ebb;
    float *data;
    int owners;
} buffer;

typedef struct saved {
    ebb_activation activation;
    ebb_claim claim;
    buffer *own; /* computed again, or reloaded into memory of ours */
    float *data; /* after fetch */
} saved;

typedef struct trainer {
    ebb_runtime *ebb;
    ebb_stream stream;
    float *weights[k_layers], *gradients[k_layers];
    float *derivative, *other_derivative;
    buffer *batch;
    saved lin[k_layers], act[k_layers];
    kernel_args calls[k_calls_per_step]; /* arguments of the step's kernels */
    size_t call_count;
    ebb_placement recompute_placement; /* what is asked for an activation that can be computed again */
    double loss;                       /* of the running step; the stream adds to it */
    uint64_t computed_again;
} trainer;

#define TRY(call)                             \
    do {                                      \
        const ebb_status try_status = (call); \
        if (try_status != EBB_OK) {           \
            return failed(try_status, #call); \
        }                                     \
    } while (0)

static ebb_status failed(ebb_status status, const char *call) {
    fprintf(stderr, "custom_loop: %s\n    %s: %s\n", call, ebb_status_name(status), ebb_last_error());
    return status;
}

static ebb_status launch(trainer *t, void (*kernel)(void *), kernel_args args) {
    kernel_args *place = &t->calls[t->call_count++];
    *place = args;
    return ebb_host_launch(t->ebb, t->stream, kernel, place);
}

static ebb_status new_buffer(trainer *t, buffer **out) {
    void *data = NULL;
    const ebb_status status = ebb_host_alloc(t->ebb, ACTIVATION_BYTES, &data);
    if (status != EBB_OK) {
        return status;
    }
    buffer *b = malloc(sizeof(*b));
    if (b == NULL) {
        ebb_host_free(t->ebb, data);
        return EBB_OUT_OF_HOST_MEMORY;
    }
    *b = (buffer){t->ebb, data, 1};
    *out = b;
    return EBB_OK;
}

/* Also the deleter that Ebb runs: behind the compute stream, which is where all readers are. */
static void let_go(void *memory) {
    buffer *b = memory;
    if (b != NULL && --b->owners == 0) {
        ebb_host_free(b->ebb, b->data);
        free(b);
    }
}

/* ---- saving and fetching ---- */

static ebb_status save(trainer *t, saved *to, const char *name, buffer *b, uint64_t micro_batch, const saved *source) {
    ebb_offload_args args = {.struct_size = sizeof(args)};
    ebb_offload_info info = {.struct_size = sizeof(info)};
    args.name = name;
    args.data = b->data;
    args.size_bytes = ACTIVATION_BYTES;
    args.producers = &t->stream;
    args.producer_count = 1;
    args.deleter = let_go;
    args.deleter_context = b;
    args.micro_batch = micro_batch;
    if (source != NULL) {
        args.flags = EBB_OFFLOAD_CAN_RECOMPUTE;
        args.placement = t->recompute_placement;
        args.recompute_from = &source->activation;
        args.recompute_from_count = 1;
    }
    ++b->owners;
    const ebb_status status = ebb_offload(t->ebb, &args, &info);
    if (status != EBB_OK) {
        --b->owners; /* nothing was taken */
        return status;
    }
    *to = (saved){.activation = info.activation};
    return EBB_OK;
}

/* EBB_RECOMPUTE is passed on; where there is no slot, memory of ours is used. */
static ebb_status fetch(trainer *t, saved *s) {
    ebb_reload_info info = {.struct_size = sizeof(info)};
    ebb_status status = ebb_reload(t->ebb, s->activation, t->stream, &info);
    if (status == EBB_OK) {
        s->claim = info.claim;
        s->data = info.data;
    } else if (status == EBB_NO_SLOT) {
        status = new_buffer(t, &s->own);
        if (status == EBB_OK) {
            s->data = s->own->data;
            status = ebb_reload_into(t->ebb, s->activation, s->data, ACTIVATION_BYTES, t->stream);
        }
    }
    return status;
}

static ebb_status fetch_activated(trainer *t, saved *s, const saved *from) {
    const ebb_status status = fetch(t, s);
    if (status != EBB_RECOMPUTE) {
        return status;
    }
    TRY(ebb_recompute_begin(t->ebb, ACTIVATION_BYTES));
    TRY(new_buffer(t, &s->own));
    s->data = s->own->data;
    TRY(launch(t, activate, (kernel_args){.input = from->data, .output = s->data}));
    TRY(ebb_recompute_end(t->ebb));
    ++t->computed_again;
    return EBB_OK;
}

static ebb_status finish(trainer *t, saved *s) {
    const saved was = *s;
    *s = (saved){0};
    let_go(was.own);
    if (was.claim != 0) {
        TRY(ebb_return(t->ebb, was.claim, t->stream));
    }
    return ebb_release(t->ebb, was.activation);
}

/* ---- one micro-batch ---- */

static ebb_status forward_layer(trainer *t, size_t layer, uint64_t micro_batch, buffer **hidden) {
    char scope[32];
    buffer *sum = NULL;
    buffer *activated = NULL;
    snprintf(scope, sizeof(scope), "layer.%zu", layer);
    TRY(ebb_scope_push(t->ebb, scope));
    TRY(new_buffer(t, &sum));
    TRY(launch(t, linear, (kernel_args){.input = (*hidden)->data, .weights = t->weights[layer], .output = sum->data}));
    TRY(save(t, &t->lin[layer], "linear", sum, micro_batch, NULL));
    TRY(new_buffer(t, &activated));
    TRY(launch(t, activate, (kernel_args){.input = sum->data, .output = activated->data}));
    TRY(save(t, &t->act[layer], "activated", activated, micro_batch, layer % 2 == 1 ? &t->lin[layer] : NULL));
    let_go(sum);
    let_go(*hidden);
    *hidden = activated;
    return ebb_scope_pop(t->ebb);
}

/* The input of a layer is what the layer below saved as `activated`. */
static ebb_status backward_layer(trainer *t, size_t layer) {
    TRY(launch(t, activate_backward,
               (kernel_args){.input = t->lin[layer].data, .upstream = t->derivative, .output = t->other_derivative}));
    const float *input = t->batch->data;
    if (layer > 0) {
        TRY(fetch(t, &t->lin[layer - 1]));
        TRY(fetch_activated(t, &t->act[layer - 1], &t->lin[layer - 1]));
        input = t->act[layer - 1].data;
    }
    TRY(launch(t, linear_backward,
               (kernel_args){.input = input,
                             .weights = t->weights[layer],
                             .upstream = t->other_derivative,
                             .output = t->derivative,
                             .gradient = t->gradients[layer]}));
    if (layer > 0) {
        TRY(finish(t, &t->act[layer - 1]));
    }
    return finish(t, &t->lin[layer]);
}

static ebb_status run_micro_batch(trainer *t, uint64_t step, uint64_t micro_batch) {
    TRY(new_buffer(t, &t->batch));
    TRY(launch(t, make_batch, (kernel_args){.output = t->batch->data, .seed = step * k_micro_batches + micro_batch}));
    buffer *hidden = t->batch;
    ++hidden->owners; /* forward's, beside that of t->batch */
    for (size_t layer = 0; layer < k_layers; ++layer) {
        TRY(forward_layer(t, layer, micro_batch, &hidden));
    }
    TRY(launch(
        t, squared_loss,
        (kernel_args){.input = hidden->data, .upstream = t->batch->data, .output = t->derivative, .loss = &t->loss}));
    let_go(hidden);
    TRY(finish(t, &t->act[k_layers - 1]));
    TRY(fetch(t, &t->lin[k_layers - 1]));
    for (size_t layer = k_layers; layer-- > 0;) {
        TRY(backward_layer(t, layer));
    }
    let_go(t->batch);
    return EBB_OK;
}

static ebb_status run_step(trainer *t, uint64_t step) {
    t->loss = 0;
    t->call_count = 0;
    TRY(ebb_step(t->ebb, EBB_PHASE_TRAIN));
    for (uint64_t micro_batch = 0; micro_batch < k_micro_batches; ++micro_batch) {
        TRY(run_micro_batch(t, step, micro_batch));
    }
    for (size_t layer = 0; layer < k_layers; ++layer) {
        TRY(launch(t, descend, (kernel_args){.output = t->weights[layer], .gradient = t->gradients[layer]}));
    }
    return ebb_host_stream_synchronize(t->ebb, t->stream); /* the loss is read, and the arguments are used again */
}

/* ---- a whole run ---- */

static ebb_status new_array(trainer *t, size_t floats, float **out) {
    void *data = NULL;
    TRY(ebb_host_alloc(t->ebb, floats * sizeof(float), &data));
    *out = data;
    return EBB_OK;
}

static ebb_status prepare(trainer *t) {
    TRY(ebb_host_stream_create(t->ebb, &t->stream));
    for (size_t layer = 0; layer < k_layers; ++layer) {
        TRY(new_array(t, WEIGHT_FLOATS, &t->weights[layer]));
        TRY(new_array(t, WEIGHT_FLOATS, &t->gradients[layer]));
        memset(t->gradients[layer], 0, WEIGHT_FLOATS * sizeof(float));
        TRY(launch(t, fill_weights, (kernel_args){.output = t->weights[layer], .seed = layer + 1000}));
    }
    TRY(new_array(t, ACTIVATION_FLOATS, &t->derivative));
    TRY(new_array(t, ACTIVATION_FLOATS, &t->other_derivative));
    return ebb_host_stream_synchronize(t->ebb, t->stream);
}

static ebb_status train(trainer *t, uint64_t steps, double *losses) {
    TRY(prepare(t));
    for (uint64_t step = 0; step < steps; ++step) {
        TRY(run_step(t, step));
        losses[step] = t->loss;
    }
    ebb_statistics s = {.struct_size = sizeof(s)};
    uint64_t peak_bytes = 0;
    TRY(ebb_stats(t->ebb, &s));
    TRY(ebb_host_memory(t->ebb, NULL, NULL, &peak_bytes));
    printf(
        "    kept %llu, offloaded %llu, computed again %llu; %llu KiB copied to the host, %llu KiB back; device peak "
        "%llu KiB\n",
        (unsigned long long)s.kept_count, (unsigned long long)s.offloaded_count, (unsigned long long)t->computed_again,
        (unsigned long long)s.d2h_bytes >> 10U, (unsigned long long)s.h2d_bytes >> 10U,
        (unsigned long long)peak_bytes >> 10U);
    return EBB_OK;
}

static int run(const char *device, int offload, uint64_t steps, double *losses) {
    const char *const policy = offload ? "offload" : "keep";
    ebb_runtime_options options = {.struct_size = sizeof(options)};
    options.device = device;
    options.policy = policy;
    options.min_offload_bytes = 1;
    options.host_device_bytes = 64U << 20U;
    options.device_budget_bytes = 8 * ACTIVATION_BYTES;
    trainer *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        fprintf(stderr, "custom_loop: out of memory\n");
        return 1;
    }
    t->recompute_placement = offload ? EBB_PLACE_RECOMPUTE : EBB_PLACE_BY_POLICY;
    printf("policy %s\n", policy);
    ebb_status status = ebb_runtime_create(&options, &t->ebb);
    if (status != EBB_OK) {
        failed(status, "ebb_runtime_create");
    } else {
        status = train(t, steps, losses);
        ebb_host_stream_destroy(t->ebb, t->stream); /* waits for the kernels that use *t */
        /* After a failure some activations may live; after success none does, and BUSY would say so. */
        const ebb_status closed = ebb_runtime_close(t->ebb, status == EBB_OK ? EBB_CLOSE_DEFAULT : EBB_CLOSE_FORCE);
        if (closed != EBB_OK) {
            status = failed(closed, "ebb_runtime_close");
        }
    }
    free(t);
    return status == EBB_OK ? 0 : 1;
}

static int compare(const char *device, uint64_t steps) {
    double *kept = calloc(steps, sizeof(double));
    double *offloaded = calloc(steps, sizeof(double));
    int result = kept == NULL || offloaded == NULL;
    result = result || run(device, 0, steps, kept) || run(device, 1, steps, offloaded);
    if (!result) {
        printf("step  loss when kept  loss when offloaded\n");
    }
    for (uint64_t step = 0; !result && step < steps; ++step) {
        printf("%4llu  %14.9f  %19.9f\n", (unsigned long long)step + 1, kept[step], offloaded[step]);
        if (memcmp(&kept[step], &offloaded[step], sizeof(double)) != 0) {
            fprintf(stderr, "custom_loop: the loss of step %llu is %a when kept and %a when offloaded\n",
                    (unsigned long long)step + 1, kept[step], offloaded[step]);
            result = 1;
        }
    }
    if (!result) {
        printf("the losses are the same, bit for bit\n");
    }
    free(kept);
    free(offloaded);
    return result;
}

/* ---- the command line ---- */

static int usage(FILE *to, int result) {
    fprintf(to,
            "usage: custom_loop [--device host] [--steps N]\n"
            "  --device NAME  where to train; this program's kernels are for the host device (default)\n"
            "  --steps N      training steps, 1 to %d (default %d)\n",
            k_largest_step_count, k_default_steps);
    return result;
}

static int parse_steps(const char *text, uint64_t *steps) {
    char *end = NULL;
    const long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < 1 || value > k_largest_step_count) {
        fprintf(stderr, "custom_loop: --steps \"%s\" is not a number from 1 to %d\n", text, k_largest_step_count);
        return 0;
    }
    *steps = (uint64_t)value;
    return 1;
}

static int check_device(const char *device) {
    if (strcmp(device, "host") == 0) {
        return 1;
    }
    if (strcmp(device, "null") == 0) {
        fprintf(stderr,
                "custom_loop: the null device computes and copies nothing, so there would be no loss to compare; "
                "use --device host\n");
    } else {
        fprintf(stderr, "custom_loop: its kernels are for --device host, not \"%s\"\n", device);
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *device = "host";
    uint64_t steps = k_default_steps;
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--help") == 0) {
            return usage(stdout, 0);
        }
        if (i + 1 == argc || (strcmp(argv[i], "--device") != 0 && strcmp(argv[i], "--steps") != 0)) {
            fprintf(stderr, "custom_loop: what is \"%s\", or what comes after it?\n", argv[i]);
            return usage(stderr, 2);
        }
        if (strcmp(argv[i], "--device") == 0) {
            device = argv[++i];
        } else if (!parse_steps(argv[++i], &steps)) {
            return 2;
        }
    }
    return check_device(device) ? compare(device, steps) : 2;
}
