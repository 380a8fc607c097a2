/* The smallest use of Ebb: one buffer leaves device memory and comes back. README.md shows the lines between the marks.
 */
#include <stdio.h>
#include <string.h>

#include "ebb/ebb.h"

#define TRY(call)                                                      \
    if ((call) != EBB_OK) {                                            \
        fprintf(stderr, "minimal: %s: %s\n", #call, ebb_last_error()); \
        return 1;                                                      \
    }

enum { size_bytes = 8 << 20 };
static size_t wrong_bytes;

/* What the backward pass does here. Runs on a stream. */
static void check(void *data) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size_bytes; ++i) {
        wrong_bytes += bytes[i] != 42;
    }
}

int main(void) {
    ebb_runtime *ebb;
    ebb_stream stream;
    void *data;
    ebb_runtime_options options = {.struct_size = sizeof(options), .device = "host", .source_bytes = EBB_SOURCES_NONE};
    TRY(ebb_runtime_create(&options, &ebb));
    TRY(ebb_host_stream_create(ebb, &stream));
    TRY(ebb_host_alloc(ebb, size_bytes, &data));
    memset(data, 42, size_bytes);

    /* README: begin */
    /* clang-format off */
    ebb_offload_args args = {.struct_size = sizeof(args), .name = "gate", .data = data, .size_bytes = size_bytes,
                             .producers = &stream, .producer_count = 1};
    ebb_offload_info saved = {.struct_size = sizeof(saved)};
    ebb_reload_info loaded = {.struct_size = sizeof(loaded)};

    TRY(ebb_step(ebb, EBB_PHASE_TRAIN));
    TRY(ebb_scope_push(ebb, "layer.0"));
    TRY(ebb_offload(ebb, &args, &saved)); /* copied behind `stream`; args.deleter runs when data may be reused */
    TRY(ebb_scope_pop(ebb));
    /* ... the rest of the forward pass, and the backward pass down to this layer ... */
    TRY(ebb_reload(ebb, saved.activation, stream, &loaded)); /* `stream` waits until the bytes are at loaded.data */
    TRY(ebb_host_launch(ebb, stream, check, loaded.data));   /* a kernel that reads them */
    TRY(ebb_return(ebb, loaded.claim, stream)); /* what comes next on `stream` may find other bytes there */
    TRY(ebb_release(ebb, saved.activation));
    /* clang-format on */
    /* README: end */

    TRY(ebb_host_stream_synchronize(ebb, stream));
    if (wrong_bytes != 0) {
        fprintf(stderr, "minimal: %zu bytes came back wrong\n", wrong_bytes);
        return 1;
    }
    TRY(ebb_host_free(ebb, data));
    TRY(ebb_host_stream_destroy(ebb, stream));
    TRY(ebb_runtime_close(ebb, EBB_CLOSE_DEFAULT));
    printf("%d bytes went and came back: %s\n", size_bytes, ebb_build_info());
    return 0;
}
