// Counts heap allocations of the program, on all threads, and refuses them to a thread that asks for it: include in
// exactly one file of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "heap_limit.hpp"
#include "uncounted.hpp"

namespace ebb::test {

inline std::atomic<uint64_t> allocation_count{0};

inline void *counted_allocation(std::size_t size_bytes, std::size_t alignment) noexcept {
    if (uncounted_depth == 0) {
        allocation_count.fetch_add(1, std::memory_order_relaxed);
    }
    if (allocations_left == 0) {
        return nullptr;
    }
    --allocations_left;
    const std::size_t wanted_bytes = size_bytes == 0 ? 1 : size_bytes;
    return alignment <= alignof(std::max_align_t)
               ? std::malloc(wanted_bytes)
               : std::aligned_alloc(alignment, (wanted_bytes + alignment - 1) / alignment * alignment);
}

inline void *counted_allocation_or_throw(std::size_t size_bytes, std::size_t alignment) {
    if (void *data = counted_allocation(size_bytes, alignment)) {
        return data;
    }
    throw std::bad_alloc();
}

}  // namespace ebb::test

// Every form: of one that is missing a sanitizer has its own, which our delete does not fit. Not inlined: the compiler
// would see malloc's result go to delete and call it a mismatch.
[[gnu::noinline]] void *operator new(std::size_t size_bytes) {
    return ebb::test::counted_allocation_or_throw(size_bytes, 1);
}
[[gnu::noinline]] void *operator new(std::size_t size_bytes, std::align_val_t alignment) {
    return ebb::test::counted_allocation_or_throw(size_bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void *operator new(std::size_t size_bytes, const std::nothrow_t &) noexcept {
    return ebb::test::counted_allocation(size_bytes, 1);
}
[[gnu::noinline]] void *operator new(std::size_t size_bytes, std::align_val_t alignment,
                                     const std::nothrow_t &) noexcept {
    return ebb::test::counted_allocation(size_bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void *operator new[](std::size_t size_bytes) {
    return ebb::test::counted_allocation_or_throw(size_bytes, 1);
}
[[gnu::noinline]] void *operator new[](std::size_t size_bytes, std::align_val_t alignment) {
    return ebb::test::counted_allocation_or_throw(size_bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void *operator new[](std::size_t size_bytes, const std::nothrow_t &) noexcept {
    return ebb::test::counted_allocation(size_bytes, 1);
}
[[gnu::noinline]] void *operator new[](std::size_t size_bytes, std::align_val_t alignment,
                                       const std::nothrow_t &) noexcept {
    return ebb::test::counted_allocation(size_bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void *data) noexcept {
    std::free(data);
}
[[gnu::noinline]] void operator delete(void *data, std::size_t) noexcept {
    std::free(data);
}
[[gnu::noinline]] void operator delete(void *data, std::align_val_t) noexcept {
    std::free(data);
}
[[gnu::noinline]] void operator delete(void *data, std::size_t, std::align_val_t) noexcept {
    std::free(data);
}
[[gnu::noinline]] void operator delete(void *data, const std::nothrow_t &) noexcept {
    std::free(data);
}
[[gnu::noinline]] void operator delete(void *data, std::align_val_t, const std::nothrow_t &) noexcept {
    std::free(data);
}
[[gnu::noinline]] void operator delete[](void *data) noexcept {
    std::free(data);
}
[[gnu::noinline]] void operator delete[](void *data, std::size_t) noexcept {
    std::free(data);
}
[[gnu::noinline]] void operator delete[](void *data, std::align_val_t) noexcept {
    std::free(data);
}
[[gnu::noinline]] void operator delete[](void *data, std::size_t, std::align_val_t) noexcept {
    std::free(data);
}
[[gnu::noinline]] void operator delete[](void *data, const std::nothrow_t &) noexcept {
    std::free(data);
}
[[gnu::noinline]] void operator delete[](void *data, std::align_val_t, const std::nothrow_t &) noexcept {
    std::free(data);
}
