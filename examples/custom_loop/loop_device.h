/* What the loop needs of the device that it trains on: one compute stream, memory, and launches. Each device is a table
 * of functions, in a file of its own; whatever they are, the loop and its calls to Ebb are the same.
 *
 * A function that does not return EBB_OK has said on standard error what failed.
 */
#ifndef LOOP_DEVICE_H
#define LOOP_DEVICE_H

#include <stdio.h>

#include "ebb/ebb.h"
#include "loop_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loop_device loop_device; /* each file's own; lives as long as a runtime, and a little longer */

typedef struct loop_device_functions {
    const char *name; /* of --device, and ebb_runtime_options.device */

    /* Before the runtime is made: sets what is particular to this device in its options. */
    ebb_status (*open)(ebb_runtime_options *options, loop_device **device);
    /* The stream that everything below is in the order of. */
    ebb_status (*start)(loop_device *device, ebb_runtime *ebb, ebb_stream *stream);

    ebb_status (*alloc)(loop_device *device, size_t size_bytes, void **data);
    void (*free)(loop_device *device, void *data); /* may be reused behind the stream; null is fine */
    ebb_status (*launch)(loop_device *device, kernel which, const kernel_args *args);
    /* Waits for the stream and copies to ordinary memory. */
    ebb_status (*read)(loop_device *device, const void *data, size_t size_bytes, void *to);
    ebb_status (*peak_bytes)(loop_device *device, uint64_t *bytes); /* of memory in use, Ebb's staging included */

    void (*stop)(loop_device *device);  /* waits for the stream; the runtime is still there */
    void (*close)(loop_device *device); /* the runtime is gone; null is fine */
} loop_device_functions;

extern const loop_device_functions host_loop_device;
extern const loop_device_functions cuda_loop_device; /* only where LOOP_HAS_CUDA is defined */

static inline ebb_status loop_failed(ebb_status status, const char *call, const char *reason) {
    fprintf(stderr, "custom_loop: %s\n    %s: %s\n", call, ebb_status_name(status), reason);
    return status;
}

/* For a call to Ebb: what failed is said here. */
#define CHECK(call)                                                    \
    do {                                                               \
        const ebb_status check_status = (call);                        \
        if (check_status != EBB_OK) {                                  \
            return loop_failed(check_status, #call, ebb_last_error()); \
        }                                                              \
    } while (0)

/* For a function of this program: it has said what failed. */
#define TRY(call)                             \
    do {                                      \
        const ebb_status try_status = (call); \
        if (try_status != EBB_OK) {           \
            return try_status;                \
        }                                     \
    } while (0)

#ifdef __cplusplus
}
#endif

#endif
