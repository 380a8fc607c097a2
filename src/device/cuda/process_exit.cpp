#include "device/cuda/process_exit.hpp"

#include <atomic>
#include <cstdlib>

namespace ebb {
namespace {

std::atomic<bool> exit_began{false};

}  // namespace

bool process_exit_began() noexcept {
    return exit_began.load(std::memory_order_relaxed);
}

void watch_process_exit() {
    static const int registered = std::atexit([] { exit_began.store(true, std::memory_order_relaxed); });
    static_cast<void>(registered);
}

}  // namespace ebb
