#include "device/cuda/process_exit.hpp"

#include <cstdlib>

namespace ebb {

void watch_process_exit() {
    static const int registered = std::atexit([] { process_exit_flag.store(true, std::memory_order_relaxed); });
    static_cast<void>(registered);
}

}  // namespace ebb
