/* How a tensor lies in the bytes that are moved. */
#ifndef EBB_PLUGINS_TORCH_LAYOUT_H
#define EBB_PLUGINS_TORCH_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "dlpack_table.h"

enum { k_most_dimensions = 16, k_alignment = 512 };

struct layout {
    struct dl_type type;
    int32_t dimensions;
    int64_t first_bytes; /* from the tensor's first element to the first byte that is moved: 0, or less */
    uint64_t residue;    /* of that byte's address, modulo k_alignment */
    int64_t shape[k_most_dimensions], strides[k_most_dimensions];
};

/* The bytes from its lowest element to its highest, and how it lies in them. False: it has too many dimensions, is of a
 * type that is no whole number of bytes, or leaves more than half of those bytes out. */
bool read_layout(const struct dl_tensor *t, struct layout *l, uint64_t *size_bytes);

#endif
