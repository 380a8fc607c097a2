#include "device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace train {
namespace {

constexpr size_t k_block_bytes = 256 * 1024;

}  // namespace

call_failed::call_failed(ebb_status status, const std::string &call)
    : std::runtime_error(fmt::format("{}: {}: {}", call, ebb_status_name(status), ebb_last_error())), status_(status) {}

void check(ebb_status status, const char *call) {
    if (status != EBB_OK) {
        throw call_failed(status, call);
    }
}

void *argument_arena::take(size_t bytes, size_t alignment) {
    for (;; ++current_) {
        if (current_ == blocks_.size()) {
            const size_t size = std::max(bytes, k_block_bytes);
            blocks_.push_back({std::make_unique<std::byte[]>(size), size, 0});
        }
        block &b = blocks_[current_];
        const size_t start = (b.used + alignment - 1) / alignment * alignment;
        if (start + bytes <= b.bytes) {
            b.used = start + bytes;
            return b.memory.get() + start;
        }
    }
}

void argument_arena::clear() {
    for (block &b : blocks_) {
        b.used = 0;
    }
    current_ = 0;
}

training_device::training_device(const ebb_runtime_options &options) {
    check(ebb_runtime_create(&options, &runtime_), "ebb_runtime_create");
    const ebb_status status = ebb_host_stream_create(runtime_, &stream_);
    if (status != EBB_OK) {
        const call_failed failure(status, "ebb_host_stream_create");
        ebb_runtime_close(runtime_, EBB_CLOSE_FORCE);
        throw failure;
    }
}

training_device::~training_device() {
    ebb_host_stream_destroy(runtime_, stream_);
    if (ebb_runtime_close(runtime_, EBB_CLOSE_FORCE) != EBB_OK) {
        fmt::print(stderr, "train_transformer: ebb_runtime_close: {}\n", ebb_last_error());
    }
}

device_array training_device::allocate(int64_t elements) {
    void *data = nullptr;
    check(ebb_host_alloc(runtime_, static_cast<uint64_t>(elements) * sizeof(float), &data), "ebb_host_alloc");
    ebb_runtime *const runtime = runtime_;
    return device_array(static_cast<float *>(data), [runtime](float *memory) {
        if (ebb_host_free(runtime, memory) != EBB_OK) {
            fmt::print(stderr, "train_transformer: ebb_host_free: {}\n", ebb_last_error());
        }
    });
}

void training_device::synchronize() {
    check(ebb_host_stream_synchronize(runtime_, stream_), "ebb_host_stream_synchronize");
}

void training_device::launch_call(void (*function)(void *), void *argument) {
    check(ebb_host_launch(runtime_, stream_, function, argument), "ebb_host_launch");
}

}  // namespace train
