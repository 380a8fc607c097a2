// The published DLPack ABI (version 1), declared here because no header of that version is a dependency:
// https://dmlc.github.io/dlpack/latest/c_api.html. Layouts are checked by static_assert.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ebb::dl {

struct version {
    uint32_t major, minor;
};
struct device {
    int32_t type, id;
};
struct data_type {
    uint8_t code, bits;
    uint16_t lanes;
};
struct tensor {
    void *data;
    device where;
    int32_t dimensions;
    data_type type;
    int64_t *shape;
    int64_t *strides;  // in elements; null: compact row-major
    uint64_t byte_offset;
};

constexpr uint32_t k_major = 1;
constexpr uint8_t k_code_uint = 1;

}  // namespace ebb::dl

// The ABI's own name: it is an incomplete struct in the public header.
struct DLManagedTensorVersioned {
    ebb::dl::version abi;
    void *manager_ctx;
    void (*deleter)(DLManagedTensorVersioned *self);
    uint64_t flags;
    ebb::dl::tensor tensor;
};

static_assert(sizeof(ebb::dl::tensor) == 48 && offsetof(ebb::dl::tensor, shape) == 24);
static_assert(sizeof(DLManagedTensorVersioned) == 80 && offsetof(DLManagedTensorVersioned, tensor) == 32);

namespace ebb::capi {

class release_queue;

// A tensor that we gave out: returns its claim when deleted, on whatever thread, also after close.
struct exported_tensor {
    DLManagedTensorVersioned managed{};
    int64_t shape[16] = {};
    int64_t strides[16] = {};
    uint64_t claim = 0;
    std::shared_ptr<release_queue> queue;
};

}  // namespace ebb::capi
