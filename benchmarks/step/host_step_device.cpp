#include "host_step_device.hpp"

#include <cstring>

#include "ebb_call.hpp"

namespace step {

host_step_device::host_step_device(const ebb_runtime_options &options, int64_t steps)
    : rates_{static_cast<double>(options.host_d2h_bytes_per_second),
             static_cast<double>(options.host_h2d_bytes_per_second)},
      device_(options, steps, *this),
      math_(device_) {}

std::shared_ptr<void> host_step_device::allocate(memory_kind kind, uint64_t size_bytes) {
    return counted(kind, size_bytes, device_.allocate_uncounted(size_bytes));
}

void host_step_device::upload(void *to, const void *from, uint64_t size_bytes) {
    device_.synchronize();
    std::memcpy(to, from, size_bytes);
}

void host_step_device::download(void *to, const void *from, uint64_t size_bytes) {
    upload(to, from, size_bytes);
}

uint64_t host_step_device::peak_used_bytes() {
    uint64_t peak_bytes = 0;
    train::check(ebb_host_memory(device_.runtime(), nullptr, nullptr, &peak_bytes), "ebb_host_memory");
    return peak_bytes;
}

}  // namespace step
