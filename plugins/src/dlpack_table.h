/* The part of DLPack 1.x that PyTorch publishes its tensors by, as the specification has it
 * (https://dmlc.github.io/dlpack/latest/c_api.html): declared here so that building needs no headers of PyTorch. */
#ifndef EBB_PLUGINS_DLPACK_TABLE_H
#define EBB_PLUGINS_DLPACK_TABLE_H

#include <stdint.h>

enum { k_dl_major = 1 };
enum { k_dl_cpu = 1, k_dl_cuda = 2 };
enum { k_dl_complex = 5 };

struct dl_version {
    uint32_t major, minor;
};
struct dl_device {
    int32_t type, id;
};
struct dl_type {
    uint8_t code, bits;
    uint16_t lanes;
};
struct dl_tensor {
    void *data;
    struct dl_device device;
    int32_t dimensions;
    struct dl_type type;
    int64_t *shape;
    int64_t *strides; /* in elements */
    uint64_t byte_offset;
};
struct DLManagedTensorVersioned {
    struct dl_version version;
    void *context;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    struct dl_tensor tensor;
};

struct dl_exchange_table {
    struct dl_version version;
    struct dl_exchange_table *older;
    int (*allocate)(struct dl_tensor *like, struct DLManagedTensorVersioned **out, void *error_context,
                    void (*set_error)(void *error_context, const char *kind, const char *message));
    /* Owned. */
    int (*from_object)(void *object, struct DLManagedTensorVersioned **out);
    /* Takes the tensor. */
    int (*to_object)(struct DLManagedTensorVersioned *tensor, void **object);
    /* Valid as long as the object is. */
    int (*view_object)(void *object, struct dl_tensor *out);
    int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
};

#endif
