#include "device/cuda/device_blocks.hpp"

#include <fmt/core.h>

#include <optional>

namespace ebb {
namespace {

constexpr uint64_t k_block_alignment = 512;

}  // namespace

device_memory device_blocks::memory() {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    bool asked = false;
    if (context_.errors.usable()) {
        const allocation_scope scope(context_);
        asked = scope.why().ok() && context_.errors
                                        .check(context_.api.mem_get_info(&free_bytes, &total_bytes), "cudaMemGetInfo",
                                               [] { return std::string("asking for free device memory"); })
                                        .ok();
    }
    const std::lock_guard lock(mutex_);
    if (asked) {
        capacity_bytes_ = total_bytes;
    }
    return {capacity_bytes_, asked ? free_bytes : 0};
}

status device_blocks::refused(uint64_t size_bytes, const std::string &why) {
    const device_memory now = memory();
    const std::lock_guard lock(mutex_);
    return {code::out_of_device_memory,
            fmt::format("device memory of CUDA device {}: {} bytes wanted, {} bytes held by Ebb, {} bytes free of {} "
                        "bytes ({}); free device memory, or lower what is asked for",
                        context_.ordinal, size_bytes, held_bytes_, now.free_bytes, now.capacity_bytes, why)};
}

// With the device current.
result<device_blocks::block> device_blocks::take(uint64_t size_bytes, uint64_t slack_bytes) {
    block made;
    made.size_bytes = size_bytes;
    const cudaError_t error = context_.api.malloc(&made.base, size_bytes + slack_bytes);
    if (error == cudaErrorMemoryAllocation) {
        context_.errors.forget(error);
        return refused(size_bytes, "cudaMalloc: " + context_.errors.name(error));
    }
    EBB_TRY(context_.errors.check(error, "cudaMalloc",
                                  [&] { return fmt::format("{} bytes of device memory", size_bytes); }));
    return made;
}

result<void *> device_blocks::allocate(uint64_t size_bytes) {
    if (size_bytes == 0) {
        return status{code::invalid_argument, "alloc_device: 0 bytes wanted; ask for at least 1"};
    }
    if (!context_.errors.usable()) {
        return context_.errors.refusal();
    }
    // 0 where CUDA did not say.
    if (const uint64_t capacity_bytes = memory().capacity_bytes; capacity_bytes != 0 && size_bytes > capacity_bytes) {
        return context_.errors.usable() ? refused(size_bytes, "more than the device has") : context_.errors.refusal();
    }
    const allocation_scope scope(context_);
    EBB_TRY(scope.why());
    result<block> made = take(size_bytes, 0);
    // CUDA promises 256 bytes.
    if (made.ok() && reinterpret_cast<uintptr_t>(made.value().base) % k_block_alignment != 0) {
        context_.errors.ignore(context_.api.free(made.value().base));
        made = take(size_bytes, k_block_alignment);
    }
    if (!made.ok()) {
        return made.why();
    }
    const uintptr_t misfit = reinterpret_cast<uintptr_t>(made.value().base) % k_block_alignment;
    void *data = static_cast<char *>(made.value().base) + (k_block_alignment - misfit) % k_block_alignment;
    const std::lock_guard lock(mutex_);
    blocks_[data] = made.value();
    held_bytes_ += size_bytes;
    return data;
}

status device_blocks::free(void *data, uint64_t size_bytes) {
    std::optional<allocation_scope> scope;
    if (context_.errors.usable()) {
        scope.emplace(context_);
        EBB_TRY(scope->why());  // while it is held still
    }
    block freed;
    {
        const std::lock_guard lock(mutex_);
        const auto found = blocks_.find(data);
        if (found == blocks_.end()) {
            return {code::invalid_argument,
                    fmt::format("free_device: {} was not allocated by this device, or was freed before", data)};
        }
        if (found->second.size_bytes != size_bytes) {
            return {code::invalid_argument, fmt::format("free_device: the block at {} has {} bytes, not {}", data,
                                                        found->second.size_bytes, size_bytes)};
        }
        freed = found->second;
        blocks_.erase(found);
        held_bytes_ -= size_bytes;
    }
    if (!scope) {
        return {};
    }
    return context_.errors.check(context_.api.free(freed.base), "cudaFree",
                                 [&] { return fmt::format("giving back {} bytes of device memory", size_bytes); });
}

void device_blocks::give_back_all() {
    for (const auto &[data, held] : blocks_) {
        context_.errors.ignore(context_.api.free(held.base));
    }
}

}  // namespace ebb
