/* A training loop of one's own on Ebb, in C, with nothing of Ebb but ebb/ebb.h.
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
 *
 * This file is the loop and its calls to Ebb. The device's stream, memory and launches are in host_loop_device.c and
 * cuda_loop_device.cu, the arithmetic is in loop_kernels.h.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ebb/ebb.h"
#include "loop_device.h"

enum { k_layers = 12, k_default_steps = 8, k_largest_step_count = 100000 };
#define ACTIVATION_BYTES (ACTIVATION_FLOATS * sizeof(float))

/* ---- the loop's own state ---- */

typedef struct saved {
    ebb_activation activation;
    ebb_claim claim;
    struct buffer *own; /* computed again, or reloaded into memory of ours */
    float *data;        /* after fetch */
} saved;

typedef struct trainer {
    const loop_device_functions *on;
    loop_device *device;
    ebb_runtime *ebb;
    ebb_stream stream;
    float *weights[k_layers], *gradients[k_layers];
    float *derivative, *other_derivative;
    double *row_losses; /* of the running step, k_rows for each micro-batch */
    struct buffer *batch;
    saved lin[k_layers], act[k_layers];
    ebb_placement recompute_placement; /* what is asked for an activation that can be computed again */
    uint64_t computed_again;
} trainer;

/* Device memory with two owners at most: the forward pass, and Ebb until its deleter runs. */
typedef struct buffer {
    trainer *owner;
    float *data;
    int owners;
} buffer;

static ebb_status launch(trainer *t, kernel which, kernel_args args) {
    return t->on->launch(t->device, which, &args);
}

static ebb_status new_floats(trainer *t, size_t count, float **out) {
    void *data = NULL;
    TRY(t->on->alloc(t->device, count * sizeof(float), &data));
    *out = data;
    return EBB_OK;
}

static ebb_status new_buffer(trainer *t, buffer **out) {
    buffer *b = malloc(sizeof(*b));
    if (b == NULL) {
        return loop_failed(EBB_OUT_OF_HOST_MEMORY, "a buffer", "malloc gave nothing");
    }
    *b = (buffer){.owner = t, .owners = 1};
    const ebb_status status = new_floats(t, ACTIVATION_FLOATS, &b->data);
    if (status != EBB_OK) {
        free(b);
        return status;
    }
    *out = b;
    return EBB_OK;
}

/* Also the deleter that Ebb runs. The memory is reused behind the compute stream: that is where its readers are, and as
 * the home stream it waits for the copy first. */
static void let_go(void *memory) {
    buffer *b = memory;
    if (b != NULL && --b->owners == 0) {
        b->owner->on->free(b->owner->device, b->data);
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
        return loop_failed(status, "ebb_offload", ebb_last_error());
    }
    *to = (saved){.activation = info.activation};
    return EBB_OK;
}

/* EBB_RECOMPUTE is passed on; where there is no slot, memory of ours is used. */
static ebb_status fetch(trainer *t, saved *s) {
    ebb_reload_info info = {.struct_size = sizeof(info)};
    const ebb_status status = ebb_reload(t->ebb, s->activation, t->stream, &info);
    if (status == EBB_OK) {
        s->claim = info.claim;
        s->data = info.data;
    } else if (status == EBB_NO_SLOT) {
        TRY(new_buffer(t, &s->own));
        s->data = s->own->data;
        CHECK(ebb_reload_into(t->ebb, s->activation, s->data, ACTIVATION_BYTES, t->stream));
        return EBB_OK;
    } else if (status != EBB_RECOMPUTE) {
        return loop_failed(status, "ebb_reload", ebb_last_error());
    }
    return status;
}

static ebb_status fetch_activated(trainer *t, saved *s, const saved *from) {
    const ebb_status status = fetch(t, s);
    if (status != EBB_RECOMPUTE) {
        return status;
    }
    CHECK(ebb_recompute_begin(t->ebb, ACTIVATION_BYTES));
    TRY(new_buffer(t, &s->own));
    s->data = s->own->data;
    TRY(launch(t, k_activate, (kernel_args){.input = from->data, .output = s->data}));
    CHECK(ebb_recompute_end(t->ebb));
    ++t->computed_again;
    return EBB_OK;
}

static ebb_status finish(trainer *t, saved *s) {
    const saved was = *s;
    *s = (saved){0};
    let_go(was.own);
    if (was.claim != 0) {
        CHECK(ebb_return(t->ebb, was.claim, t->stream));
    }
    CHECK(ebb_release(t->ebb, was.activation));
    return EBB_OK;
}

/* ---- one micro-batch ---- */

static ebb_status forward_layer(trainer *t, size_t layer, uint64_t micro_batch, buffer **hidden) {
    char scope[32];
    buffer *sum = NULL;
    buffer *activated = NULL;
    snprintf(scope, sizeof(scope), "layer.%zu", layer);
    CHECK(ebb_scope_push(t->ebb, scope));
    TRY(new_buffer(t, &sum));
    TRY(launch(t, k_linear,
               (kernel_args){.input = (*hidden)->data, .weights = t->weights[layer], .output = sum->data}));
    TRY(save(t, &t->lin[layer], "linear", sum, micro_batch, NULL));
    TRY(new_buffer(t, &activated));
    TRY(launch(t, k_activate, (kernel_args){.input = sum->data, .output = activated->data}));
    TRY(save(t, &t->act[layer], "activated", activated, micro_batch, layer % 2 == 1 ? &t->lin[layer] : NULL));
    let_go(sum);
    let_go(*hidden);
    *hidden = activated;
    CHECK(ebb_scope_pop(t->ebb));
    return EBB_OK;
}

/* The input of a layer is what the layer below saved as `activated`. */
static ebb_status backward_layer(trainer *t, size_t layer) {
    TRY(launch(t, k_activate_backward,
               (kernel_args){.input = t->lin[layer].data, .upstream = t->derivative, .output = t->other_derivative}));
    const float *input = t->batch->data;
    if (layer > 0) {
        TRY(fetch(t, &t->lin[layer - 1]));
        TRY(fetch_activated(t, &t->act[layer - 1], &t->lin[layer - 1]));
        input = t->act[layer - 1].data;
    }
    TRY(launch(t, k_weight_gradient,
               (kernel_args){.input = input, .upstream = t->other_derivative, .gradient = t->gradients[layer]}));
    TRY(launch(t, k_input_gradient,
               (kernel_args){.weights = t->weights[layer], .upstream = t->other_derivative, .output = t->derivative}));
    if (layer > 0) {
        TRY(finish(t, &t->act[layer - 1]));
    }
    return finish(t, &t->lin[layer]);
}

static ebb_status run_micro_batch(trainer *t, uint64_t step, uint64_t micro_batch) {
    TRY(new_buffer(t, &t->batch));
    TRY(launch(t, k_make_batch, (kernel_args){.output = t->batch->data, .seed = step * k_micro_batches + micro_batch}));
    buffer *hidden = t->batch;
    ++hidden->owners; /* forward's, beside that of t->batch */
    for (size_t layer = 0; layer < k_layers; ++layer) {
        TRY(forward_layer(t, layer, micro_batch, &hidden));
    }
    TRY(launch(t, k_squared_loss,
               (kernel_args){.input = hidden->data,
                             .upstream = t->batch->data,
                             .output = t->derivative,
                             .row_losses = t->row_losses + micro_batch * k_rows}));
    let_go(hidden);
    TRY(finish(t, &t->act[k_layers - 1]));
    TRY(fetch(t, &t->lin[k_layers - 1]));
    for (size_t layer = k_layers; layer-- > 0;) {
        TRY(backward_layer(t, layer));
    }
    let_go(t->batch);
    return EBB_OK;
}

static ebb_status run_step(trainer *t, uint64_t step, double *loss) {
    double row_losses[k_micro_batches * k_rows];
    CHECK(ebb_step(t->ebb, EBB_PHASE_TRAIN));
    for (uint64_t micro_batch = 0; micro_batch < k_micro_batches; ++micro_batch) {
        TRY(run_micro_batch(t, step, micro_batch));
    }
    for (size_t layer = 0; layer < k_layers; ++layer) {
        TRY(launch(t, k_descend, (kernel_args){.output = t->weights[layer], .gradient = t->gradients[layer]}));
    }
    TRY(t->on->read(t->device, t->row_losses, sizeof(row_losses), row_losses));
    *loss = 0;
    for (size_t i = 0; i < k_micro_batches * k_rows; ++i) {
        *loss += row_losses[i];
    }
    return EBB_OK;
}

/* ---- a whole run ---- */

static ebb_status prepare(trainer *t) {
    for (size_t layer = 0; layer < k_layers; ++layer) {
        TRY(new_floats(t, WEIGHT_FLOATS, &t->weights[layer]));
        TRY(new_floats(t, WEIGHT_FLOATS, &t->gradients[layer]));
        TRY(launch(t, k_fill_weights,
                   (kernel_args){.output = t->weights[layer], .gradient = t->gradients[layer], .seed = layer + 1000}));
    }
    TRY(new_floats(t, ACTIVATION_FLOATS, &t->derivative));
    TRY(new_floats(t, ACTIVATION_FLOATS, &t->other_derivative));
    void *row_losses = NULL;
    TRY(t->on->alloc(t->device, k_micro_batches * k_rows * sizeof(double), &row_losses));
    t->row_losses = row_losses;
    return EBB_OK;
}

static void free_arrays(trainer *t) {
    for (size_t layer = 0; layer < k_layers; ++layer) {
        t->on->free(t->device, t->weights[layer]);
        t->on->free(t->device, t->gradients[layer]);
    }
    t->on->free(t->device, t->derivative);
    t->on->free(t->device, t->other_derivative);
    t->on->free(t->device, t->row_losses);
}

static ebb_status train(trainer *t, uint64_t steps, double *losses) {
    TRY(t->on->start(t->device, t->ebb, &t->stream));
    TRY(prepare(t));
    for (uint64_t step = 0; step < steps; ++step) {
        TRY(run_step(t, step, &losses[step]));
    }
    ebb_statistics s = {.struct_size = sizeof(s)};
    uint64_t peak_bytes = 0;
    CHECK(ebb_stats(t->ebb, &s));
    TRY(t->on->peak_bytes(t->device, &peak_bytes));
    printf(
        "    kept %llu, offloaded %llu, computed again %llu; %llu KiB copied to the host, %llu KiB back; device peak "
        "%llu KiB\n",
        (unsigned long long)s.kept_count, (unsigned long long)s.offloaded_count, (unsigned long long)t->computed_again,
        (unsigned long long)s.d2h_bytes >> 10U, (unsigned long long)s.h2d_bytes >> 10U,
        (unsigned long long)peak_bytes >> 10U);
    return EBB_OK;
}

static ebb_status with_runtime(trainer *t, const ebb_runtime_options *options, uint64_t steps, double *losses) {
    CHECK(ebb_runtime_create(options, &t->ebb));
    ebb_status status = train(t, steps, losses);
    free_arrays(t);
    t->on->stop(t->device);
    /* After a failure some activations may live; after success none does, and BUSY would say so. */
    const ebb_status closed = ebb_runtime_close(t->ebb, status == EBB_OK ? EBB_CLOSE_DEFAULT : EBB_CLOSE_FORCE);
    if (closed != EBB_OK) {
        status = loop_failed(closed, "ebb_runtime_close", ebb_last_error());
    }
    return status;
}

static int run(const loop_device_functions *on, int offload, uint64_t steps, double *losses) {
    ebb_runtime_options options = {.struct_size = sizeof(options)};
    options.device = on->name;
    options.policy = offload ? "offload" : "keep";
    options.min_offload_bytes = 1;
    options.device_budget_bytes = 8 * ACTIVATION_BYTES;
    trainer t = {.on = on, .recompute_placement = offload ? EBB_PLACE_RECOMPUTE : EBB_PLACE_BY_POLICY};
    ebb_status status = on->open(&options, &t.device);
    if (status == EBB_OK) {
        printf("policy %s\n", options.policy);
        status = with_runtime(&t, &options, steps, losses);
        on->close(t.device);
    }
    return status == EBB_OK ? 0 : 1;
}

static int compare(const loop_device_functions *on, uint64_t steps) {
    double *kept = calloc(steps, sizeof(double));
    double *offloaded = calloc(steps, sizeof(double));
    int result = kept == NULL || offloaded == NULL;
    result = result || run(on, 0, steps, kept) || run(on, 1, steps, offloaded);
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
            "usage: custom_loop [--device host|cuda] [--steps N]\n"
            "  --device NAME  where to train: host (default), or cuda, the first NVIDIA GPU\n"
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

static int train_on(const char *device, uint64_t steps) {
    if (strcmp(device, "host") == 0) {
        return compare(&host_loop_device, steps);
    }
    if (strcmp(device, "cuda") == 0) {
#ifdef LOOP_HAS_CUDA
        return compare(&cuda_loop_device, steps);
#else
        fprintf(
            stderr,
            "custom_loop: --device cuda: this build has no CUDA; configure it where a CUDA toolkit is found, or use "
            "--device host\n");
        return 1;
#endif
    }
    if (strcmp(device, "null") == 0) {
        fprintf(stderr,
                "custom_loop: the null device computes and copies nothing, so there would be no loss to compare; "
                "use --device host\n");
    } else {
        fprintf(stderr, "custom_loop: its kernels are for --device host and cuda, not \"%s\"\n", device);
    }
    return 2;
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
    return train_on(device, steps);
}
