#include "training_device.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "ebb_call.hpp"

namespace train {
namespace {

void finish_step(step_log *const &log) {
    log->finish_step();
}

}  // namespace

host_training_device::host_training_device(const ebb_runtime_options &options, int64_t steps) : log_(steps) {
    check(ebb_runtime_create(&options, &runtime_), "ebb_runtime_create");
    const ebb_status status = ebb_host_stream_create(runtime_, &stream_);
    if (status != EBB_OK) {
        const call_failed failure(status, "ebb_host_stream_create");
        ebb_runtime_close(runtime_, EBB_CLOSE_FORCE);
        throw failure;
    }
}

host_training_device::~host_training_device() {
    // Kernels that are still running read from the argument arenas and write to the log.
    ebb_host_stream_destroy(runtime_, stream_);
    if (ebb_runtime_close(runtime_, EBB_CLOSE_FORCE) != EBB_OK) {
        fmt::print(stderr, "ebb_runtime_close: {}\n", ebb_last_error());
    }
}

std::shared_ptr<void> host_training_device::allocate_bytes(uint64_t size_bytes) {
    void *data = nullptr;
    check(ebb_host_alloc(runtime_, size_bytes, &data), "ebb_host_alloc");
    ebb_runtime *const runtime = runtime_;
    return {data, [runtime](void *memory) {
                if (ebb_host_free(runtime, memory) != EBB_OK) {
                    fmt::print(stderr, "ebb_host_free: {}\n", ebb_last_error());
                }
            }};
}

std::shared_ptr<float> host_training_device::allocate(int64_t elements) {
    return std::static_pointer_cast<float>(allocate_bytes(static_cast<uint64_t>(elements) * sizeof(float)));
}

void host_training_device::synchronize() {
    check(ebb_host_stream_synchronize(runtime_, stream_), "ebb_host_stream_synchronize");
}

void host_training_device::begin_step(int64_t step) {
    step_ = step;
    arguments_ = &step_arguments_[step % 2];
    arguments_->clear();
}

void host_training_device::end_step() {
    launch(finish_step, &log_);
}

void host_training_device::begin_timing() {
    first_timed_step_ = step_;
    timing_began_ = step_log::clock::now();
}

std::vector<double> host_training_device::step_seconds() const {
    std::vector<double> seconds;
    step_log::clock::time_point began = timing_began_;
    for (int64_t step = first_timed_step_; step <= step_; ++step) {
        const step_log::clock::time_point ended = log_.finished_at(step);
        seconds.push_back(std::chrono::duration<double>(ended - began).count());
        began = ended;
    }
    return seconds;
}

void host_training_device::launch_call(void (*function)(void *), void *argument) {
    check(ebb_host_launch(runtime_, stream_, function, argument), "ebb_host_launch");
}

}  // namespace train
