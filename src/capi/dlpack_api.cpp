// Exported: the DLPack forms of offload and reload.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "capi/activation_calls.hpp"

using namespace ebb;        // NOLINT(google-build-using-namespace): this file is the C ABI of that namespace
using namespace ebb::capi;  // NOLINT(google-build-using-namespace)

namespace {

void delete_managed(void *context) {
    auto *tensor = static_cast<DLManagedTensorVersioned *>(context);
    if (tensor->deleter != nullptr) {
        tensor->deleter(tensor);
    }
}

// The tensor's sizes, strides (compact where it has none) and number of elements.
status read_sizes(const dl::tensor &t, tensor_shape &shape, uint64_t &elements) {
    if (t.dimensions < 0 || t.dimensions > tensor_shape::k_max_dimensions) {
        return {code::unsupported, fmt::format("tensor has {} dimensions, up to {} are supported", t.dimensions,
                                               tensor_shape::k_max_dimensions)};
    }
    if (t.dimensions != 0 && t.shape == nullptr) {
        return {code::invalid_argument, "tensor->shape is null"};
    }
    const auto count = static_cast<size_t>(t.dimensions);
    shape.dimensions = t.dimensions;
    elements = 1;
    for (size_t d = 0; d < count; ++d) {
        if (t.shape[d] < 0) {
            return {code::invalid_argument, fmt::format("tensor->shape[{}] is {}", d, t.shape[d])};
        }
        shape.shape[d] = t.shape[d];
        if (__builtin_mul_overflow(elements, static_cast<uint64_t>(t.shape[d]), &elements)) {
            return {code::invalid_argument, "tensor's shape overflows 64 bits"};
        }
    }
    if (elements > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return {code::invalid_argument, "tensor's shape overflows 63 bits"};
    }
    // Unsigned: a tensor without elements may have sizes whose product overflows; its strides mean nothing.
    uint64_t compact = 1;
    for (size_t d = count; d-- > 0;) {
        shape.strides[d] = t.strides != nullptr ? t.strides[d] : static_cast<int64_t>(compact);
        compact *= static_cast<uint64_t>(std::max<int64_t>(t.shape[d], 1));
    }
    return {};
}

status read_type(const dl::data_type &type, uint64_t elements, tensor_shape &shape, uint64_t &size_bytes) {
    shape.type = type;
    const uint64_t bits = uint64_t{type.bits} * type.lanes;
    uint64_t total_bits = 0;
    if (bits == 0 || __builtin_mul_overflow(elements, bits, &total_bits) || total_bits % 8 != 0) {
        return {code::invalid_argument,
                fmt::format("tensor's type has {} bits x {} lanes, {} elements: not a whole number of bytes", type.bits,
                            type.lanes, elements)};
    }
    size_bytes = total_bits / 8;
    return {};
}

// Any permutation of a dense tensor is one block of bytes; its strides come back with it. Anything else (expanded,
// sliced) has bytes that belong to others. Dense: sorted by stride, each is the product of the sizes below it.
status check_dense(const tensor_shape &shape) {
    const auto count = static_cast<size_t>(shape.dimensions);
    std::array<size_t, tensor_shape::k_max_dimensions> order{};
    for (size_t d = 0; d < count; ++d) {
        order[d] = d;
    }
    std::sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count),
              [&](size_t x, size_t y) { return shape.strides[x] < shape.strides[y]; });
    int64_t expected = 1;
    for (size_t k = 0; k < count; ++k) {
        const size_t d = order[k];
        if (shape.shape[d] == 1) {
            continue;
        }
        if (shape.strides[d] != expected) {
            return {
                code::invalid_argument,
                fmt::format("tensor is not dense: stride {} of dimension {} should be {}; offload a contiguous copy, "
                            "or the storage it is a view of",
                            shape.strides[d], d, expected)};
        }
        expected *= shape.shape[d];
    }
    return {};
}

status read_shape(const dl::tensor &t, tensor_shape &shape, uint64_t &size_bytes) {
    uint64_t elements = 0;
    EBB_TRY(read_sizes(t, shape, elements));
    EBB_TRY(read_type(t.type, elements, shape, size_bytes));
    return elements > 1 ? check_dense(shape) : status();
}

status check_plain(const ebb_offload_args &a) {
    if (a.data != nullptr || a.size_bytes != 0 || a.deleter != nullptr || a.deleter_context != nullptr) {
        return {code::invalid_argument,
                "args->data, size_bytes, deleter and deleter_context must be zero: they come from the tensor"};
    }
    return {};
}

void delete_exported(DLManagedTensorVersioned *managed) {
    auto *exported = static_cast<exported_tensor *>(managed->manager_ctx);
    const std::shared_ptr<release_queue> queue = std::move(exported->queue);
    try {
        queue->push({exported->claim, true});
    } catch (...) {
        // No memory for the queue: the claim stays out until close. Nothing may be thrown from here.
    }
    queue->recycle_tensor(exported);
}

const tensor_shape *find_shape(const ebb_runtime &r, uint64_t activation) {
    const size_t i = record_of(activation);
    return i < r.shapes.size() && r.shapes[i].activation == activation ? &r.shapes[i] : nullptr;
}

void make_place_for_shape(ebb_runtime &r, uint32_t record) {
    if (r.shapes.size() <= record) {
        r.shapes.resize(size_t{record} + 1);
    }
}

void fill_exported(const ebb_runtime &r, const tensor_shape *shape, const reload_outcome &bytes, exported_tensor &out) {
    dl::tensor &t = out.managed.tensor;
    t.data = bytes.data;
    t.where = {static_cast<int32_t>(r.device->info().type), r.device->info().ordinal};
    t.byte_offset = 0;
    if (shape != nullptr) {
        t.dimensions = shape->dimensions;
        t.type = shape->type;
        std::copy(shape->shape.begin(), shape->shape.end(), out.shape);
        std::copy(shape->strides.begin(), shape->strides.end(), out.strides);
    } else {
        t.dimensions = 1;
        t.type = {dl::k_code_uint, 8, 1};
        out.shape[0] = static_cast<int64_t>(bytes.size_bytes);
        out.strides[0] = 1;
    }
    t.shape = out.shape;
    t.strides = out.strides;
    out.claim = bytes.claim;
    out.queue = r.queue;
    out.managed.abi = {dl::k_major, 0};
    out.managed.flags = 0;
    out.managed.manager_ctx = &out;
    out.managed.deleter = delete_exported;
}

}  // namespace

ebb_status ebb_offload_dlpack(ebb_runtime *runtime, const ebb_offload_args *args,
                              struct DLManagedTensorVersioned *tensor, ebb_offload_info *info) {
    return on_runtime(runtime, [&](entry &e) -> status {
        ebb_offload_args copy;
        const ebb_offload_args *given = nullptr;
        EBB_TRY(read_offload_args(args, copy, given));
        ebb_offload_args known = *given;
        EBB_TRY(check_plain(known));
        if (tensor == nullptr) {
            return {code::invalid_argument, "tensor is null"};
        }
        if (tensor->abi.major != dl::k_major) {
            return {code::unsupported, fmt::format("tensor has DLPack version {}.{}, this is version {}",
                                                   tensor->abi.major, tensor->abi.minor, dl::k_major)};
        }
        tensor_shape shape;
        EBB_TRY(read_shape(tensor->tensor, shape, known.size_bytes));
        if (tensor->tensor.data == nullptr && known.size_bytes != 0) {
            return {code::invalid_argument, "tensor->data is null"};
        }
        known.data = tensor->tensor.data == nullptr
                         ? nullptr
                         : static_cast<std::byte *>(tensor->tensor.data) + tensor->tensor.byte_offset;
        const device_info &device = runtime->device->info();
        const dl::device where = tensor->tensor.where;
        if (where.type != static_cast<int32_t>(device.type) || where.id != device.ordinal) {
            return {
                code::invalid_argument,
                fmt::format("tensor->device is type {} id {}, but this runtime serves type {} ordinal {}: offload on "
                            "the runtime of that device",
                            where.type, where.id, static_cast<int32_t>(device.type), device.ordinal)};
        }
        known.device_type = 0;
        known.deleter = delete_managed;
        known.deleter_context = tensor;
        // Now: once the tensor is taken, nothing may fail. Records are taken in order, so the next activation's is at
        // most the one behind all that were seen.
        make_place_for_shape(*runtime, runtime->activation_records);
        EBB_TRY(offload_checked(e, *runtime, known, false, info));
        shape.activation = info->activation;
        make_place_for_shape(*runtime, record_of(shape.activation));
        runtime->shapes[record_of(shape.activation)] = shape;
        return {};
    });
}

ebb_status ebb_reload_dlpack(ebb_runtime *runtime, ebb_activation activation, ebb_stream consumer,
                             struct DLManagedTensorVersioned **tensor) {
    return on_runtime_reporting(runtime, [&](entry &e) -> status {
        if (tensor == nullptr) {
            return {code::invalid_argument, "tensor is null: it is where the tensor is written"};
        }
        std::unique_ptr<exported_tensor> out(runtime->queue->acquire_tensor());
        reload_outcome bytes;
        status s = reload_checked(e, *runtime, activation, stream_id{consumer}, bytes);
        if (!s.ok()) {
            runtime->queue->recycle_tensor(out.release());
            return s;
        }
        fill_exported(*runtime, find_shape(*runtime, activation), bytes, *out);
        *tensor = &out.release()->managed;
        return {};
    });
}
