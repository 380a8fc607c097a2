// Device memory from cudaMalloc: sizes are remembered, so that what is given back must be what was taken.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "base/status.hpp"
#include "device/cuda/cuda_context.hpp"
#include "device/device.hpp"

namespace ebb {

class device_blocks {
public:
    explicit device_blocks(cuda_context &context) : context_(context) {}

    result<void *> allocate(uint64_t size_bytes);
    status free(void *data, uint64_t size_bytes);
    // With the device current.
    void give_back_all();
    // Nothing free once the device is lost.
    [[nodiscard]] device_memory memory();

private:
    struct block {
        void *base = nullptr;  // what CUDA gave
        uint64_t size_bytes = 0;
    };
    result<block> take(uint64_t size_bytes, uint64_t slack_bytes);
    [[nodiscard]] status refused(uint64_t size_bytes, const std::string &why);

    cuda_context &context_;
    std::mutex mutex_;
    uint64_t capacity_bytes_ = 0;
    uint64_t held_bytes_ = 0;
    std::map<void *, block> blocks_;
};

}  // namespace ebb
