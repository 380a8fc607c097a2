// Heap allocations that are not the tested code's: those of what a test puts under it.
#pragma once

#include <cstdint>

namespace ebb::test {

inline thread_local uint32_t uncounted_depth = 0;

class uncounted {
public:
    uncounted() noexcept { ++uncounted_depth; }
    ~uncounted() { --uncounted_depth; }
    uncounted(const uncounted &) = delete;
    uncounted &operator=(const uncounted &) = delete;
};

}  // namespace ebb::test
