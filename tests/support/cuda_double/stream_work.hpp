// One piece of work of a stream, or node of a graph: what it does, and which memory it reads and writes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ebb::test {

enum class work_kind : uint8_t {
    finite,     // ends by itself
    may_stand,  // a kernel of the test's, which may wait for anything
    always      // the test's own, and no kernel: runs also when the device is lost
};

struct memory_access {
    uintptr_t first = 0;
    uintptr_t end = 0;
    bool writes = false;
    uint64_t block = 0;  // serial of the allocation it lies in

    [[nodiscard]] bool conflicts(const memory_access &other) const {
        return block == other.block && first < other.end && other.first < end && (writes || other.writes);
    }
};

struct stream_work {
    std::string what;
    std::function<void()> run;
    std::vector<memory_access> accesses;
    work_kind kind = work_kind::finite;
};

}  // namespace ebb::test
