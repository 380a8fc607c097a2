// What a piece of simulated work touches, and what the checking mode finds wrong with it. Memory has no bytes there:
// what lies in it is a tag, a number that its writer chooses, and the position within what was written.
#pragma once

#include <cstdint>
#include <string>

#include "device/sim/sim_machine.hpp"

namespace ebb {

constexpr uint64_t k_any_tag = 0;

struct sim_read {
    const void *data = nullptr;
    uint64_t size_bytes = 0;
    uint64_t tag = k_any_tag;     // that must lie there, from this position on; k_any_tag: whatever it is
    uint64_t position_bytes = 0;  // other than 0 for a view into what was written
};

struct sim_write {
    void *data = nullptr;
    uint64_t size_bytes = 0;
    uint64_t tag = k_any_tag;
    uint64_t position_bytes = 0;  // other than 0 where several pieces of work write parts of one thing
};

enum class sim_action : uint8_t { kernel, copy_d2h, copy_h2d, copy_d2d, checksum, free, alloc };

// One enqueued piece of work.
struct sim_operation {
    sim_action action = sim_action::kernel;
    uint64_t number = 0;  // of all that were enqueued, from 1
    uint64_t stream = 0;
};

enum class sim_fault : uint8_t {
    wrong_content,          // a kernel reads something else than it expects
    reads_what_is_written,  // by another piece of work, at this time
    writes_what_is_read,
    writes_what_is_written,
    touches_no_memory,  // that was freed, or never was
    frees_what_is_used,
};

struct sim_violation {
    sim_fault fault = sim_fault::wrong_content;
    sim_operation who;
    uint64_t address = 0;
    uint64_t size_bytes = 0;
    sim_time_ps time_ps = 0;
    // wrong_content: what was expected at the address and what lies there; no tag: nothing was ever written.
    uint64_t expected_tag = 0, expected_position_bytes = 0;
    uint64_t found_tag = 0, found_position_bytes = 0;
    sim_operation other;  // the one that reads or writes, where there is one
};

// "copy to the host 12 on stream 0x3000001, at 1.234 us: reads 4096 bytes at 0x7f.. that kernel 11 on stream .. writes"
[[nodiscard]] std::string to_string(const sim_violation &violation);

}  // namespace ebb
