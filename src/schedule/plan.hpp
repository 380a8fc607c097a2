// What is to be done with each tensor of a step, and what that was predicted to give.
#pragma once

#include <cstdint>
#include <vector>

namespace ebb {

// The numbers are those of ebb_placement.
enum class tensor_placement : uint8_t { keep = 1, offload = 2, recompute = 3 };

enum class memory_mode : uint8_t {
    one_pool,  // kept, draining and reloaded tensors share the budget: a caller's allocator
    staging,   // reloaded tensors have a block of their own; the rest of the budget is the framework's
};

struct plan {
    std::vector<tensor_placement> placement;  // by tensor
    uint64_t staging_bytes = 0;               // memory_mode::staging
};

struct plan_link {
    double bytes_per_second = 0;
    double latency_ns = 0;     // of each chunk
    uint64_t chunk_bytes = 0;  // 0: a transfer is one copy

    [[nodiscard]] double transfer_ns(uint64_t size_bytes) const noexcept {
        const uint64_t chunks = chunk_bytes == 0 || size_bytes == 0 ? 1 : (size_bytes + chunk_bytes - 1) / chunk_bytes;
        return static_cast<double>(chunks) * latency_ns + static_cast<double>(size_bytes) * 1e9 / bytes_per_second;
    }
};

// Where a step is planned for.
struct plan_budget {
    plan_link d2h;
    plan_link h2d;
    memory_mode mode = memory_mode::one_pool;
    uint64_t device_bytes = 0;  // for what the step model holds, fixed bytes included
    uint64_t host_bytes = ~uint64_t{0};
    double collective_loss = 0;  // part of a collective's rate that is lost while a copy out runs
    // Part of each transfer's time that counts as step time all the same: copies take memory bandwidth from kernels and
    // slow collectives, where nobody knows which. 0: moving is free as long as it is hidden.
    double move_cost = 0;
    uint64_t fixed_staging_bytes = 0;  // staging is given, not the planner's to choose
    // Staging: slots lie where staging's allocator puts them, which costs time to find out; otherwise room is a number
    // of bytes, freed first taken first. They differ only where sizes do.
    bool exact_slots = false;
};

}  // namespace ebb
