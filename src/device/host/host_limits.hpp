// How much memory this process may still take: what its control group and the system leave. Growing beyond it
// is not an error that anyone returns, it is the kernel's killer; so pinned memory asks here first.
#pragma once

#include <cstdint>
#include <string>

namespace ebb {

enum class memory_limiter : uint8_t { none, control_group, system };

struct host_room {
    // Left to take, after the margin of 5 % of the limit; the largest uint64_t when nothing limits.
    uint64_t room_bytes = 0;
    memory_limiter limiter = memory_limiter::none;  // which of the two is the smaller
    uint64_t limit_bytes = 0;                       // the group's limit, or the system's memory
    uint64_t used_bytes = 0;                        // of it, what cannot be reclaimed
    std::string limit_file;                         // of the limiting group, as seen without system_root
};

// Reads /proc/self/cgroup, the memory controller's files (version 2, or 1) of that group and all above it, and
// /proc/meminfo, all below system_root. What is missing, "max" or not a number limits nothing.
[[nodiscard]] host_room read_host_room(const std::string &system_root);

// "control group limit 1073741824 bytes (/sys/fs/cgroup/a/memory.max), 900000000 bytes of it in use: ..." and how to
// raise it.
[[nodiscard]] std::string explain(const host_room &room);

}  // namespace ebb
