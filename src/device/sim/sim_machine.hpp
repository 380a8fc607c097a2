// What a simulated machine can do: one GPU and its share of a host. Rates are bytes per second, times virtual.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"

namespace ebb {

// Virtual time in picoseconds: a byte at 900 GB/s is about one.
using sim_time_ps = uint64_t;

constexpr double k_ps_per_second = 1e12;

struct sim_link {
    double bytes_per_second = 0;       // one direction alone; 0: without limit
    double both_bytes_per_second = 0;  // while the other direction is busy too; 0: the same
    sim_time_ps latency_ps = 0;        // of each copy, during which the engine does nothing else

    // What part of the rate a copy of that size reaches: rising sizes, linear between them, and flat outside. Empty:
    // all of it at any size.
    struct point {
        uint64_t size_bytes;
        double fraction;
    };
    std::vector<point> curve;

    [[nodiscard]] double fraction_at(uint64_t size_bytes) const noexcept;
};

struct sim_machine {
    uint64_t device_bytes = 0;
    uint64_t host_bytes = 0;  // that may be pinned
    sim_link d2h;
    sim_link h2d;
    bool integrated = false;   // device memory is host memory: copies take their time and free nothing
    bool half_duplex = false;  // both directions share one link: each has half of its rate while both are busy

    double hbm_bytes_per_second = 0;        // 0: without limit
    double host_dram_bytes_per_second = 0;  // 0: without limit; all GPUs below one host memory do the same at once
    uint32_t gpus_per_host_memory = 1;

    // Part of a collective's rate that is lost while a copy to host memory runs.
    double collective_loss = 0;

    // The host. Each call takes that long; one that does not run ahead waits after every call until the device is idle.
    sim_time_ps host_call_ps = 1'000'000;
    bool host_runs_ahead = true;
};

// What could never go on or makes no sense is refused with the number's name, its value and what is allowed.
[[nodiscard]] status check_machine(const sim_machine &machine);

}  // namespace ebb
