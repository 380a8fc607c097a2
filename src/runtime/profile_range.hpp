// What the calling thread does between begin and end, for a profiler; nothing without a device.
#pragma once

#include <cstdint>

#include "device/device.hpp"

namespace ebb {

class profile_range {
public:
    profile_range() = default;
    profile_range(device &dev, const char *what, const char *name, uint64_t size_bytes) : device_(&dev) {
        dev.begin_range(what, name, size_bytes);
    }
    ~profile_range() {
        if (device_ != nullptr) {
            device_->end_range();
        }
    }
    profile_range(const profile_range &) = delete;
    profile_range &operator=(const profile_range &) = delete;

private:
    device *device_ = nullptr;
};

}  // namespace ebb
