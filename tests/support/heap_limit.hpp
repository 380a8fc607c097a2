// How often the calling thread still gets heap memory, where operator new is the one of counted_new.hpp.
#pragma once

#include <cstdint>
#include <new>

namespace ebb::test {

inline thread_local uint64_t allocations_left = ~uint64_t{0};

// While it lives, the calling thread gets heap memory `allowed` times and then none.
class no_heap_memory {
public:
    explicit no_heap_memory(uint64_t allowed = 0) noexcept { allocations_left = allowed; }
    ~no_heap_memory() { allocations_left = ~uint64_t{0}; }
    no_heap_memory(const no_heap_memory &) = delete;
    no_heap_memory &operator=(const no_heap_memory &) = delete;
};

// Within that: what a test puts under the tested code gets all it wants.
class heap_memory_again {
public:
    heap_memory_again() noexcept : left_(allocations_left) { allocations_left = ~uint64_t{0}; }
    ~heap_memory_again() { allocations_left = left_; }
    heap_memory_again(const heap_memory_again &) = delete;
    heap_memory_again &operator=(const heap_memory_again &) = delete;

private:
    uint64_t left_;
};

// Makes the call with heap memory for none of its allocations, then for one, and so on until it goes through. Adds how
// often it did not.
template <class Call>
auto despite_refusals(uint64_t &refused, Call &&call) {
    for (uint64_t allowed = 0;; ++allowed) {
        try {
            const no_heap_memory none(allowed);
            return call();
        } catch (const std::bad_alloc &) {
            ++refused;
        }
    }
}

}  // namespace ebb::test
