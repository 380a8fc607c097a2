/* What a user's program does first: offloads a buffer and gets the same bytes back. */
#include <ebb/ebb.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int done_with_source = 0;

static void source_deleter(void *context) {
    (void)context;
    ++done_with_source;
}

static int check(ebb_status status, const char *call) {
    if (status != EBB_OK) {
        fprintf(stderr, "%s: %s: %s\n", call, ebb_status_name(status), ebb_last_error());
    }
    return status == EBB_OK;
}

int main(void) {
    enum { k_bytes = 1 << 20 };
    ebb_runtime_options options = {.struct_size = sizeof(options), .device = "host", .min_offload_bytes = 1};
    ebb_runtime *runtime = NULL;
    ebb_stream stream = 0;
    void *data = NULL;
    if (!check(ebb_runtime_create(&options, &runtime), "ebb_runtime_create") ||
        !check(ebb_host_stream_create(runtime, &stream), "ebb_host_stream_create") ||
        !check(ebb_host_alloc(runtime, k_bytes, &data), "ebb_host_alloc")) {
        return 1;
    }
    memset(data, 0x5A, k_bytes);

    ebb_offload_args args = {.struct_size = sizeof(args),
                             .name = "gate",
                             .data = data,
                             .size_bytes = k_bytes,
                             .producers = &stream,
                             .producer_count = 1,
                             .deleter = source_deleter};
    ebb_offload_info placed = {.struct_size = sizeof(placed)};
    ebb_reload_info reloaded = {.struct_size = sizeof(reloaded)};
    if (!check(ebb_step(runtime, EBB_PHASE_TRAIN), "ebb_step") ||
        !check(ebb_offload(runtime, &args, &placed), "ebb_offload") ||
        !check(ebb_reload(runtime, placed.activation, stream, &reloaded), "ebb_reload") ||
        !check(ebb_host_stream_synchronize(runtime, stream), "ebb_host_stream_synchronize")) {
        return 1;
    }
    const unsigned char *bytes = reloaded.data;
    for (size_t i = 0; i < k_bytes; ++i) {
        if (bytes[i] != 0x5A) {
            fprintf(stderr, "byte %zu came back as %d\n", i, bytes[i]);
            return 1;
        }
    }
    if (!check(ebb_return(runtime, reloaded.claim, stream), "ebb_return") ||
        !check(ebb_release(runtime, placed.activation), "ebb_release") ||
        !check(ebb_host_stream_destroy(runtime, stream), "ebb_host_stream_destroy") ||
        !check(ebb_host_free(runtime, data), "ebb_host_free") ||
        !check(ebb_runtime_close(runtime, EBB_CLOSE_DEFAULT), "ebb_runtime_close")) {
        return 1;
    }
    if (done_with_source != 1) {
        fprintf(stderr, "the deleter ran %d times\n", done_with_source);
        return 1;
    }
    printf("%d bytes came back through %s\n", k_bytes, ebb_build_info());
    return 0;
}
