// Devices and their memory: versions, attributes, allocation, registration.
#include <fmt/core.h>

#include <map>

#include "cuda_double/double_core.hpp"

namespace ebb::test {
namespace {

// Of a GPU in a PCIe slot, as far as a program that copies asks.
const std::map<cudaDeviceAttr, int> &usual_attributes() {
    static const std::map<cudaDeviceAttr, int> k_attributes = {
        {cudaDevAttrComputeCapabilityMajor, 9},
        {cudaDevAttrComputeCapabilityMinor, 0},
        {cudaDevAttrMultiProcessorCount, 132},
        {cudaDevAttrAsyncEngineCount, 3},
        {cudaDevAttrUnifiedAddressing, 1},
        {cudaDevAttrCanMapHostMemory, 1},
        {cudaDevAttrHostRegisterSupported, 1},
        {cudaDevAttrManagedMemory, 1},
        {cudaDevAttrConcurrentManagedAccess, 1},
        {cudaDevAttrMemoryPoolsSupported, 1},
        {cudaDevAttrIntegrated, 0},
        {cudaDevAttrPageableMemoryAccess, 0},
        {cudaDevAttrPageableMemoryAccessUsesHostPageTables, 0},
        {cudaDevAttrDirectManagedMemAccessFromHost, 0},
        {cudaDevAttrHostNumaId, -1},
        {cudaDevAttrNumaConfig, 0},
        {cudaDevAttrNumaId, -1},
        {cudaDevAttrComputeMode, 0},
        {cudaDevAttrPciBusId, 1},
        {cudaDevAttrPciDeviceId, 0},
        {cudaDevAttrPciDomainId, 0},
    };
    return k_attributes;
}

constexpr uint64_t k_device_alignment_bytes = 512;

uint64_t counted_bytes(uint64_t size_bytes) {
    return (size_bytes + k_device_alignment_bytes - 1) / k_device_alignment_bytes * k_device_alignment_bytes;
}

}  // namespace

cudaError_t double_core::driver_error() const {
    constexpr int k_per_major = 1000;
    if (options_.driver_version / k_per_major < CUDART_VERSION / k_per_major) {
        return cudaErrorInsufficientDriver;
    }
    return options_.devices == 0 ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t double_core::get_device_count(call & /*c*/, int *count) {
    *count = 0;
    if (const cudaError_t error = driver_error(); error != cudaSuccess) {
        return error;
    }
    *count = options_.devices;
    return cudaSuccess;
}

cudaError_t double_core::check_ordinal(int ordinal) const {
    if (const cudaError_t error = driver_error(); error != cudaSuccess) {
        return error;
    }
    return ordinal < 0 || ordinal >= options_.devices ? cudaErrorInvalidDevice : cudaSuccess;
}

cudaError_t double_core::set_device(call &c, int ordinal) {
    const cudaError_t error = check_ordinal(ordinal);
    if (error == cudaSuccess) {
        c.thread.device = ordinal;
        c.thread.bound = true;
        device(ordinal).in_use = true;
    }
    return error;
}

cudaError_t double_core::push_device(call &c, int ordinal) {
    if (const cudaError_t error = check_ordinal(ordinal); error != cudaSuccess) {
        return error;
    }
    double_device &pushed = device(ordinal);
    if (const cudaError_t broken = pushed.life.error(); broken != cudaSuccess) {
        return broken;
    }
    pushed.in_use = true;
    c.thread.pushed.push_back(ordinal);
    return cudaSuccess;
}

cudaError_t double_core::pop_device(call &c) {
    if (c.thread.pushed.empty()) {
        return misused(c, cuda_rule::current_device_is_left_alone, "no context was pushed",
                       cudaErrorDeviceUninitialized);
    }
    c.thread.pushed.pop_back();
    return cudaSuccess;
}

cudaError_t double_core::device_in_use(call & /*c*/, int ordinal, int *in_use) const {
    const cudaError_t error = check_ordinal(ordinal);
    *in_use = error == cudaSuccess && devices_[static_cast<size_t>(ordinal)].in_use ? 1 : 0;
    return error;
}

cudaError_t double_core::has_context(call &c, int *has) const {
    *has = c.thread.bound || !c.thread.pushed.empty() ? 1 : 0;
    return driver_error();
}

int double_core::attribute(cudaDeviceAttr which) const {
    if (const auto given = options_.attributes.find(which); given != options_.attributes.end()) {
        return given->second;
    }
    return usual_attributes().at(which);
}

cudaError_t double_core::device_get_attribute(call & /*c*/, int *value, cudaDeviceAttr which, int ordinal) {
    if (const cudaError_t error = check_ordinal(ordinal); error != cudaSuccess) {
        return error;
    }
    if (options_.attributes.count(which) == 0 && usual_attributes().count(which) == 0) {
        return cudaErrorInvalidValue;
    }
    *value = attribute(which);
    return cudaSuccess;
}

cudaError_t double_core::mem_get_info(call &c, size_t *free_bytes, size_t *total_bytes) {
    if (const cudaError_t error = check_safe(c); error != cudaSuccess) {
        return error;
    }
    *total_bytes = options_.capacity_bytes;
    *free_bytes = options_.capacity_bytes - device(c.thread.current()).used_bytes;
    return cudaSuccess;
}

cudaError_t double_core::malloc(call &c, void **data, size_t size_bytes) {
    if (const cudaError_t error = check_safe(c); error != cudaSuccess) {
        return error;
    }
    *data = nullptr;
    if (size_bytes == 0) {
        return cudaSuccess;
    }
    double_device &on = device(c.thread.device);
    const uint64_t room = options_.capacity_bytes - on.used_bytes;
    if (size_bytes > room || counted_bytes(size_bytes) > room) {
        return cudaErrorMemoryAllocation;
    }
    memory_block block;
    block.size_bytes = size_bytes;
    block.place = memory_place::device;
    block.device = c.thread.current();
    block.owner = c.caller;
    if (!memory_.allocate(std::move(block), data)) {
        return cudaErrorMemoryAllocation;
    }
    on.used_bytes += counted_bytes(size_bytes);
    return cudaSuccess;
}

// CUDA may wait here for the device, or not: who relies on it is found by what the host has not seen the end of.
cudaError_t double_core::release(call &c, memory_block &block) {
    const std::optional<std::string> in_flight = memory_map::in_flight(block, known_);
    if (in_flight) {
        (void)misused(c, cuda_rule::freed_memory_is_idle,
                      fmt::format("nobody has seen the end of {}, which uses {} bytes at {}", *in_flight,
                                  block.size_bytes, reinterpret_cast<void *>(block.first)),
                      cudaSuccess);
    }
    if (block.place == memory_place::device) {
        device(block.device).used_bytes -= counted_bytes(block.size_bytes);
    } else {
        pinned_bytes_ -= block.size_bytes;
    }
    memory_.remove(block, in_flight.has_value());
    return cudaSuccess;
}

cudaError_t double_core::free(call &c, void *data) {
    if (const cudaError_t error = check_safe(c); error != cudaSuccess) {
        return error;
    }
    if (data == nullptr) {
        return cudaSuccess;
    }
    memory_block *block = memory_.starting_at(data);
    if (block == nullptr || block->place != memory_place::device) {
        return misused(c, cuda_rule::freed_once, fmt::format("{} is no device memory", data), cudaErrorInvalidValue);
    }
    return release(c, *block);
}

cudaError_t double_core::host_alloc(call &c, void **data, size_t size_bytes, unsigned flags) {
    if (const cudaError_t error = check_safe(c); error != cudaSuccess) {
        return error;
    }
    *data = nullptr;
    if (size_bytes == 0) {
        return cudaSuccess;
    }
    if ((flags & cudaHostAllocWriteCombined) != 0) {
        (void)misused(c, cuda_rule::no_write_combined_memory, "the CPU reads it without a cache", cudaSuccess);
    }
    if (size_bytes > pinned_limit_bytes_ || pinned_bytes_ > pinned_limit_bytes_ - size_bytes) {
        return cudaErrorMemoryAllocation;
    }
    memory_block block;
    block.size_bytes = size_bytes;
    block.place = memory_place::pinned;
    block.owner = c.caller;
    block.flags = flags;
    if (!memory_.allocate(std::move(block), data)) {
        return cudaErrorMemoryAllocation;
    }
    pinned_bytes_ += size_bytes;
    return cudaSuccess;
}

cudaError_t double_core::free_host(call &c, void *data) {
    if (const cudaError_t error = check_safe(c); error != cudaSuccess) {
        return error;
    }
    if (data == nullptr) {
        return cudaSuccess;
    }
    memory_block *block = memory_.starting_at(data);
    if (block == nullptr || block->place != memory_place::pinned || block->registered) {
        return misused(c, cuda_rule::freed_once, fmt::format("{} is not of host_alloc", data), cudaErrorInvalidValue);
    }
    return release(c, *block);
}

cudaError_t double_core::host_register(call &c, void *data, size_t size_bytes, unsigned flags) {
    if (const cudaError_t error = check_safe(c); error != cudaSuccess) {
        return error;
    }
    if (data == nullptr || size_bytes == 0) {
        return cudaErrorInvalidValue;
    }
    if (size_bytes > pinned_limit_bytes_ || pinned_bytes_ > pinned_limit_bytes_ - size_bytes) {
        return cudaErrorMemoryAllocation;
    }
    memory_block block;
    block.size_bytes = size_bytes;
    block.place = memory_place::pinned;
    block.owner = c.caller;
    block.flags = flags;
    if (memory_.add_registered(data, std::move(block)) == nullptr) {
        return misused(c, cuda_rule::registered_once,
                       fmt::format("{} bytes at {} are pinned already", size_bytes, data),
                       cudaErrorHostMemoryAlreadyRegistered);
    }
    pinned_bytes_ += size_bytes;
    return cudaSuccess;
}

cudaError_t double_core::host_unregister(call &c, void *data) {
    if (const cudaError_t error = check_safe(c); error != cudaSuccess) {
        return error;
    }
    memory_block *block = memory_.starting_at(data);
    if (block == nullptr || !block->registered) {
        return misused(c, cuda_rule::registered_once, fmt::format("{} is not registered", data),
                       cudaErrorHostMemoryNotRegistered);
    }
    return release(c, *block);
}

}  // namespace ebb::test
