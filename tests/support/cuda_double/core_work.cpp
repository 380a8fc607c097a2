// What streams are given to do: copies, batches, kernels.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "cuda_double/double_core.hpp"

namespace ebb::test {
namespace {

memory_access access_of(const memory_block *block, const void *data, uint64_t size_bytes, bool writes) {
    const auto first = reinterpret_cast<uintptr_t>(data);
    return {first, first + size_bytes, writes, block == nullptr ? 0 : block->serial};
}

bool fits(cudaMemcpyKind kind, memory_place destination, memory_place source) {
    const bool to_device = destination == memory_place::device;
    const bool from_device = source == memory_place::device;
    switch (kind) {
        case cudaMemcpyHostToHost:
            return !to_device && !from_device;
        case cudaMemcpyHostToDevice:
            return to_device && !from_device;
        case cudaMemcpyDeviceToHost:
            return !to_device && from_device;
        case cudaMemcpyDeviceToDevice:
            return to_device && from_device;
        case cudaMemcpyDefault:
            return true;
    }
    return false;
}

}  // namespace

// --------------------------------------------------------------------------------------------------- giving --

cudaError_t double_core::give(call &c, double_stream &stream, stream_work work) {
    if (stream.capture != nullptr) {
        stream.capture->add(stream, std::move(work));
        return cudaSuccess;
    }
    order_with_legacy(stream);
    stream.count_work();
    if (const auto unordered = memory_.use(work, stream.number, stream.enqueued, stream.behind, known_)) {
        (void)misused(c, cuda_rule::shared_memory_is_ordered, *unordered, cudaSuccess);
        work.run = [] {};  // wrong each time, and no race for a sanitizer to see
    }
    enqueue(stream, std::move(work.run), work.kind, device(stream.device).life);
    return cudaSuccess;
}

// --------------------------------------------------------------------------------------------------- copies --

// Null for memory that CUDA does not know.
cudaError_t double_core::check_range(const call &c, const void *data, uint64_t size_bytes, memory_block **block) {
    *block = memory_.containing(data);
    if (*block == nullptr) {
        if (memory_.touches_a_block(data, size_bytes)) {
            return misused(c, cuda_rule::copy_in_one_registration,
                           fmt::format("{} bytes at {} lie in pinned memory in part", size_bytes, data),
                           cudaErrorInvalidValue);
        }
        return cudaSuccess;
    }
    if ((*block)->contains(data, size_bytes)) {
        return cudaSuccess;
    }
    const bool next_to_another = (*block)->place == memory_place::pinned &&
                                 memory_.starting_at(reinterpret_cast<void *>((*block)->end())) != nullptr;
    return misused(c, next_to_another ? cuda_rule::copy_in_one_registration : cuda_rule::copy_stays_inside,
                   fmt::format("{} bytes at {}, of a block of {} bytes at {}", size_bytes, data, (*block)->size_bytes,
                               reinterpret_cast<void *>((*block)->first)),
                   cudaErrorInvalidValue);
}

// Where the GPU reads through the host's page tables, registering takes pages and does not pin them.
memory_place double_core::place_of(const memory_block *block) const {
    if (block == nullptr || (block->registered && attribute(cudaDevAttrPageableMemoryAccessUsesHostPageTables) != 0)) {
        return memory_place::pageable;
    }
    return block->place;
}

cudaError_t double_core::check_copy(call &c, void *destination, const void *source, size_t size_bytes,
                                    cudaMemcpyKind kind, checked_copy *copy) {
    memory_block *to = nullptr;
    memory_block *from = nullptr;
    if (const cudaError_t error = check_range(c, destination, size_bytes, &to); error != cudaSuccess) {
        return error;
    }
    if (const cudaError_t error = check_range(c, source, size_bytes, &from); error != cudaSuccess) {
        return error;
    }
    copy->destination = place_of(to);
    copy->source = place_of(from);
    if (!fits(kind, copy->destination, copy->source)) {
        return misused(c, cuda_rule::copy_direction_fits,
                       fmt::format("{} bytes from {} to {} are no copy of kind {}", size_bytes, source, destination,
                                   static_cast<int>(kind)),
                       cudaErrorInvalidValue);
    }
    const bool out = copy->destination != memory_place::device && copy->source == memory_place::device;
    const bool in = copy->destination == memory_place::device && copy->source != memory_place::device;
    copy_engine *engine = out ? &engines_.d2h : in ? &engines_.h2d : nullptr;
    copy->work.what = fmt::format("a copy of {} bytes {}", size_bytes, out ? "out" : in ? "in" : "on the device");
    copy->work.accesses = {access_of(to, destination, size_bytes, true), access_of(from, source, size_bytes, false)};
    copy->work.run = [engine, destination, source, size_bytes] {
        if (engine != nullptr) {
            engine->copy(destination, source, size_bytes);
        } else {
            std::memmove(destination, source, size_bytes);
        }
    };
    return cudaSuccess;
}

// A small source is staged in the call; a large one when the stream has got there; a destination is there when the call
// returns.
cudaError_t double_core::copy_pageable(call &c, double_stream &stream, checked_copy copy, void *destination,
                                       const void *source, size_t size_bytes) {
    constexpr size_t k_staged_bytes = 64 * 1024;
    const bool into = copy.destination == memory_place::pageable;
    if (c.caller == cuda_caller::backend) {
        (void)misused(c, into ? cuda_rule::pageable_destination_blocks : cuda_rule::pageable_source_is_staged,
                      fmt::format("{} bytes of host memory that is not pinned", size_bytes), cudaSuccess);
    }
    if (stream.capture != nullptr) {
        return spoil(c, *stream.capture, cuda_rule::unsafe_call_in_own_capture, "pageable memory in a capture",
                     cudaErrorStreamCaptureUnsupported);
    }
    if (!into && size_bytes <= k_staged_bytes) {
        const auto *first = static_cast<const std::byte *>(source);
        copy.work.run = [this, destination, staged = std::vector<std::byte>(first, first + size_bytes)] {
            engines_.h2d.copy(destination, staged.data(), staged.size());
        };
        return give(c, stream, std::move(copy.work));
    }
    const cudaError_t error = give(c, stream, std::move(copy.work));
    return error != cudaSuccess ? error : wait_on_host(c, stream);
}

cudaError_t double_core::memcpy_async(call &c, void *destination, const void *source, size_t size_bytes,
                                      cudaMemcpyKind kind, cudaStream_t stream) {
    double_stream *on = nullptr;
    if (const cudaError_t error = stream_for_work(c, stream, &on); error != cudaSuccess) {
        return error;
    }
    if (size_bytes == 0) {
        return cudaSuccess;
    }
    if (destination == nullptr || source == nullptr) {
        return cudaErrorInvalidValue;
    }
    checked_copy copy;
    if (const cudaError_t error = check_copy(c, destination, source, size_bytes, kind, &copy); error != cudaSuccess) {
        return error;
    }
    if (copy.destination == memory_place::pageable || copy.source == memory_place::pageable) {
        return copy_pageable(c, *on, std::move(copy), destination, source, size_bytes);
    }
    return give(c, *on, std::move(copy.work));
}

cudaError_t double_core::memcpy_now(call &c, void *destination, const void *source, size_t size_bytes,
                                    cudaMemcpyKind kind) {
    if (const cudaError_t error = check_safe(c); error != cudaSuccess) {
        return error;
    }
    if (const cudaError_t error = memcpy_async(c, destination, source, size_bytes, kind, cudaStreamLegacy);
        error != cudaSuccess) {
        return error;
    }
    return wait_on_host(c, *find_stream(c, cudaStreamLegacy));
}

cudaError_t double_core::check_attributes(const call &c, size_t count, const cudaMemcpyAttributes *attributes,
                                          const size_t *indices, size_t attribute_count) {
    bool valid = attributes != nullptr && indices != nullptr && attribute_count > 0 && attribute_count <= count &&
                 indices[0] == 0;
    for (size_t i = 0; valid && i < attribute_count; ++i) {
        const cudaMemcpySrcAccessOrder order = attributes[i].srcAccessOrder;
        valid = (order == cudaMemcpySrcAccessOrderStream || order == cudaMemcpySrcAccessOrderDuringApiCall ||
                 order == cudaMemcpySrcAccessOrderAny) &&
                indices[i] < count && (i == 0 || indices[i] > indices[i - 1]);
    }
    return valid ? cudaSuccess
                 : misused(c, cuda_rule::batch_has_attributes,
                           fmt::format("{} attributes for {} copies", attribute_count, count), cudaErrorInvalidValue);
}

cudaError_t double_core::memcpy_batch_async(call &c, void *const *destinations, const void *const *sources,
                                            const size_t *sizes_bytes, size_t count,
                                            const cudaMemcpyAttributes *attributes, const size_t *attribute_indices,
                                            size_t attribute_count, cudaStream_t stream) {
    double_stream *on = nullptr;
    if (const cudaError_t error = stream_for_work(c, stream, &on); error != cudaSuccess) {
        return error;
    }
    if (on->kind == stream_kind::legacy) {
        return misused(c, cuda_rule::batch_not_on_legacy, "the stream is the legacy default one",
                       cudaErrorInvalidValue);
    }
    if (on->capture != nullptr) {
        return spoil(c, *on->capture, cuda_rule::batch_is_not_captured, fmt::format("stream {} captures", on->number),
                     cudaErrorStreamCaptureUnsupported);
    }
    if (const cudaError_t error = check_attributes(c, count, attributes, attribute_indices, attribute_count);
        error != cudaSuccess) {
        return error;
    }
    stream_work batch{fmt::format("a batch of {} copies", count), [] {}, {}, work_kind::finite};
    std::vector<std::function<void()>> runs;
    for (size_t i = 0; i < count; ++i) {
        if (destinations[i] == nullptr || sources[i] == nullptr || sizes_bytes[i] == 0) {
            return cudaErrorInvalidValue;
        }
        checked_copy copy;
        if (const cudaError_t error =
                check_copy(c, destinations[i], sources[i], sizes_bytes[i], cudaMemcpyDefault, &copy);
            error != cudaSuccess) {
            return error;
        }
        if (c.caller == cuda_caller::backend &&
            (copy.destination == memory_place::pageable || copy.source == memory_place::pageable)) {
            (void)misused(c, cuda_rule::pageable_source_is_staged, "a batch with memory that is not pinned",
                          cudaSuccess);
        }
        for (const memory_access &access : copy.work.accesses) {
            for (const memory_access &other : batch.accesses) {
                if (access.conflicts(other)) {
                    (void)misused(c, cuda_rule::batch_has_no_order, "two copies of a batch use the same memory",
                                  cudaSuccess);
                }
            }
        }
        batch.accesses.insert(batch.accesses.end(), copy.work.accesses.begin(), copy.work.accesses.end());
        runs.push_back(std::move(copy.work.run));
    }
    std::shuffle(runs.begin(), runs.end(), random_);
    batch.run = [runs = std::move(runs)] {
        for (const auto &run : runs) {
            run();
        }
    };
    return give(c, *on, std::move(batch));
}

cudaError_t double_core::memset_async(call &c, void *data, int value, size_t size_bytes, cudaStream_t stream) {
    return launch(c, stream, fmt::format("setting {} bytes", size_bytes), {{data, size_bytes, true}},
                  [=] { std::memset(data, value, size_bytes); });
}

// --------------------------------------------------------------------------------------------------- kernels --

cudaError_t double_core::check_kernel(call &c, const double_stream &stream, const std::string &what,
                                      const std::vector<kernel_range> &ranges, std::vector<memory_access> *accesses) {
    if (stream.device != c.thread.current()) {
        return misused(
            c, cuda_rule::kernel_on_the_current_device,
            fmt::format("stream {} is of device {}, current is {}", stream.number, stream.device, c.thread.current()),
            cudaErrorInvalidResourceHandle);
    }
    for (const kernel_range &range : ranges) {
        memory_block *block = nullptr;
        if (const cudaError_t error = check_range(c, range.data, range.size_bytes, &block); error != cudaSuccess) {
            return error;
        }
        if (block == nullptr && attribute(cudaDevAttrPageableMemoryAccess) == 0) {
            return misused(c, cuda_rule::kernel_memory_is_reachable,
                           fmt::format("{}: {} is not memory of the device, nor pinned", what, range.data),
                           cudaErrorInvalidValue);
        }
        accesses->push_back(access_of(block, range.data, range.size_bytes, range.writes));
    }
    return cudaSuccess;
}

cudaError_t double_core::launch(call &c, cudaStream_t stream, std::string what, const std::vector<kernel_range> &ranges,
                                std::function<void()> run, work_kind kind) {
    if (c.caller == cuda_caller::user) {
        if (c.thread.last_error != cudaSuccess) {
            (void)misused(c, cuda_rule::no_error_is_left_behind,
                          fmt::format("error {} is left of an earlier call", static_cast<int>(c.thread.last_error)),
                          cudaSuccess);
        }
        if (!c.thread.pushed.empty()) {
            (void)misused(c, cuda_rule::current_device_is_left_alone, "a context is pushed still", cudaSuccess);
        }
    }
    double_stream *on = nullptr;
    if (const cudaError_t error = stream_for_work(c, stream, &on); error != cudaSuccess) {
        return error;
    }
    stream_work work{std::move(what), std::move(run), {}, kind};
    if (const cudaError_t error = check_kernel(c, *on, work.what, ranges, &work.accesses); error != cudaSuccess) {
        return error;
    }
    return give(c, *on, std::move(work));
}

}  // namespace ebb::test
