#include "cuda_training_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "cuda_calls.hpp"

namespace step {

cuda_training_device::cuda_training_device(const ebb_runtime_options &options, int64_t steps, uint64_t memory_cap_bytes,
                                           allocator allocate)
    : allocate_(std::move(allocate)) {
    try {
        check(cudaStreamCreateWithFlags(&compute_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        stream_ = reinterpret_cast<uintptr_t>(compute_);
        memory_ = std::make_unique<cuda_memory>(options.device_ordinal, compute_, memory_cap_bytes);
        void *losses = nullptr;
        check(cudaHostAlloc(&losses, static_cast<size_t>(steps) * sizeof(double), cudaHostAllocDefault),
              "cudaHostAlloc");
        losses_ = static_cast<double *>(losses);
        std::fill_n(losses_, steps, 0.0);
        ends_.resize(static_cast<size_t>(steps));
        for (cudaEvent_t &end : ends_) {
            check(cudaEventCreateWithFlags(&end, cudaEventBlockingSync), "cudaEventCreateWithFlags");
        }
        check(cudaEventCreate(&timing_began_), "cudaEventCreate");
        train::check(ebb_runtime_create(&options, &runtime_), "ebb_runtime_create");
    } catch (...) {
        release();
        throw;
    }
}

cuda_training_device::~cuda_training_device() {
    release();
}

void cuda_training_device::release() {
    if (ebb_runtime_close(runtime_, EBB_CLOSE_FORCE) != EBB_OK) {
        fmt::print(stderr, "ebb_runtime_close: {}\n", ebb_last_error());
    }
    memory_.reset();
    if (timing_began_ != nullptr) {
        cudaEventDestroy(timing_began_);
    }
    for (cudaEvent_t const end : ends_) {
        if (end != nullptr) {
            cudaEventDestroy(end);
        }
    }
    if (losses_ != nullptr) {
        cudaFreeHost(losses_);
    }
    if (compute_ != nullptr) {
        cudaStreamDestroy(compute_);
    }
}

void cuda_training_device::synchronize() {
    check(cudaStreamSynchronize(compute_), "cudaStreamSynchronize");
}

void cuda_training_device::end_step() {
    check(cudaEventRecord(ends_[static_cast<size_t>(step_)], compute_), "cudaEventRecord");
}

void cuda_training_device::wait_for_steps(int64_t count) {
    if (count > 0) {
        check(cudaEventSynchronize(ends_[static_cast<size_t>(count) - 1]), "cudaEventSynchronize");
    }
}

void cuda_training_device::begin_timing() {
    first_timed_step_ = step_;
    check(cudaEventRecord(timing_began_, compute_), "cudaEventRecord");
}

std::vector<double> cuda_training_device::step_seconds() const {
    std::vector<double> seconds;
    cudaEvent_t began = timing_began_;
    for (int64_t step = first_timed_step_; step <= step_; ++step) {
        cudaEvent_t const ended = ends_[static_cast<size_t>(step)];
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, began, ended), "cudaEventElapsedTime");
        seconds.push_back(static_cast<double>(milliseconds) * 1e-3);
        began = ended;
    }
    return seconds;
}

}  // namespace step
