// Counts heap allocations of the program: include in exactly one file of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace ebb::test {

inline std::atomic<unsigned long> allocation_count{0};

}  // namespace ebb::test

// Not inlined: the compiler would see malloc's result go to delete and call it a mismatch.
[[gnu::noinline]] void *operator new(std::size_t size) {
    ebb::test::allocation_count.fetch_add(1, std::memory_order_relaxed);
    if (void *data = std::malloc(size == 0 ? 1 : size)) {
        return data;
    }
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void *data) noexcept {
    std::free(data);
}
[[gnu::noinline]] void operator delete(void *data, std::size_t) noexcept {
    std::free(data);
}
