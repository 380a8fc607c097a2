// Whether the process is on its way out: the CUDA runtime then ends at a moment that nobody is told of, and a call into
// it may hang or crash. Objects that outlive main (statics of a plugin, a garbage collector's last round) come here
// late.
#pragma once

#include <atomic>

namespace ebb {

inline std::atomic<bool> process_exit_flag{false};

[[nodiscard]] inline bool process_exit_began() noexcept {
    return process_exit_flag.load(std::memory_order_relaxed);
}

// Once per process, after the first CUDA call: what is registered later with the C library runs earlier at exit, so the
// flag is up before the CUDA runtime takes itself down.
void watch_process_exit();

}  // namespace ebb
