#include "torch_layout.h"

bool read_layout(const struct dl_tensor *t, struct layout *l, uint64_t *size_bytes) {
    const int64_t bits = (int64_t)t->type.bits * t->type.lanes;
    if (t->dimensions > k_most_dimensions || bits % 8 != 0) {
        return false;
    }
    int64_t low = 0;
    int64_t high = 0;
    int64_t elements = 1;
    for (int32_t d = 0; d < t->dimensions; ++d) {
        l->shape[d] = t->shape[d];
        l->strides[d] = t->strides[d];
        elements *= t->shape[d];
        if (t->shape[d] > 0) {
            const int64_t reach = (t->shape[d] - 1) * t->strides[d];
            *(reach < 0 ? &low : &high) += reach;
        }
    }
    const int64_t spanned = elements == 0 ? 0 : high - low + 1;
    l->type = t->type;
    l->dimensions = t->dimensions;
    l->first_bytes = low * (bits / 8);
    l->residue = (uintptr_t)((char *)t->data + t->byte_offset + l->first_bytes) % k_alignment;
    *size_bytes = (uint64_t)(spanned * (bits / 8));
    return spanned <= 2 * elements;
}
