/* The loop on Ebb's host device, whose streams, memory and launches are calls of ebb.h. */
#include <stdlib.h>
#include <string.h>

#include "loop_device.h"

struct loop_device {
    ebb_runtime *ebb;
    ebb_stream stream;
};

typedef struct host_launch {
    kernel which;
    kernel_args args;
} host_launch;

static ebb_status out_of_memory(const char *what) {
    return loop_failed(EBB_OUT_OF_HOST_MEMORY, what, "malloc gave nothing");
}

static ebb_status host_open(ebb_runtime_options *options, loop_device **device) {
    *device = calloc(1, sizeof(**device));
    if (*device == NULL) {
        return out_of_memory("opening the device");
    }
    options->host_device_bytes = 64U << 20U;
    return EBB_OK;
}

static ebb_status host_start(loop_device *device, ebb_runtime *ebb, ebb_stream *stream) {
    CHECK(ebb_host_stream_create(ebb, &device->stream));
    device->ebb = ebb;
    *stream = device->stream;
    return EBB_OK;
}

static ebb_status host_alloc(loop_device *device, size_t size_bytes, void **data) {
    CHECK(ebb_host_alloc(device->ebb, size_bytes, data));
    return EBB_OK;
}

static void host_free(loop_device *device, void *data) {
    if (data != NULL) {
        ebb_host_free(device->ebb, data);
    }
}

static void run_launch(void *memory) { /* on the stream's thread */
    host_launch *const l = memory;
    for (size_t at = 0; at < elements_of(l->which); ++at) {
        run_element(l->which, &l->args, at);
    }
    free(l);
}

static ebb_status host_launch_kernel(loop_device *device, kernel which, const kernel_args *args) {
    host_launch *const l = malloc(sizeof(*l));
    if (l == NULL) {
        return out_of_memory("a launch");
    }
    *l = (host_launch){which, *args};
    const ebb_status status = ebb_host_launch(device->ebb, device->stream, run_launch, l);
    if (status != EBB_OK) {
        free(l);
        return loop_failed(status, "ebb_host_launch", ebb_last_error());
    }
    return EBB_OK;
}

static ebb_status host_read(loop_device *device, const void *data, size_t size_bytes, void *to) {
    CHECK(ebb_host_stream_synchronize(device->ebb, device->stream));
    memcpy(to, data, size_bytes);
    return EBB_OK;
}

static ebb_status host_peak_bytes(loop_device *device, uint64_t *bytes) {
    CHECK(ebb_host_memory(device->ebb, NULL, NULL, bytes));
    return EBB_OK;
}

static void host_stop(loop_device *device) {
    if (device->ebb != NULL) {
        ebb_host_stream_destroy(device->ebb, device->stream);
    }
}

static void host_close(loop_device *device) {
    free(device);
}

const loop_device_functions host_loop_device = {.name = "host",
                                                .open = host_open,
                                                .start = host_start,
                                                .alloc = host_alloc,
                                                .free = host_free,
                                                .launch = host_launch_kernel,
                                                .read = host_read,
                                                .peak_bytes = host_peak_bytes,
                                                .stop = host_stop,
                                                .close = host_close};
