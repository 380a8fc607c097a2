// What the parts of a CUDA device share, and what a CUDA call needs of its thread, put back at the end of a scope.
#pragma once

#include <optional>

#include "base/status.hpp"
#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_errors.hpp"

namespace ebb {

struct cuda_context {
    cuda_context(const cuda_api &table, int32_t device) : api(table), ordinal(device), errors(table, device) {}

    const cuda_api &api;
    const int32_t ordinal;
    cuda_errors errors;
};

// While a thread captures in the global mode, CUDA forbids every other thread what could disturb a capture (to ask an
// event, to allocate), and a thread that does it spoils the capture. In the relaxed mode a thread may, and the capture
// stays whole: ours has nothing to do with it.
class relaxed_capture_scope {
public:
    explicit relaxed_capture_scope(cuda_context &context) : context_(context), exchanged_(exchange()) {}
    ~relaxed_capture_scope() {
        if (exchanged_) {
            exchange();
        }
    }
    relaxed_capture_scope(const relaxed_capture_scope &) = delete;
    relaxed_capture_scope &operator=(const relaxed_capture_scope &) = delete;

private:
    bool exchange() {
        const cudaError_t error = context_.api.thread_exchange_stream_capture_mode(&mode_);
        context_.errors.ignore(error);
        return error == cudaSuccess;
    }

    cuda_context &context_;
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
    const bool exchanged_;
};

// The device is the thread's current one: for streams 0, 1 and 2, which mean the current device's, and for kernels.
class current_device_scope {
public:
    explicit current_device_scope(cuda_context &context)
        : api_(context.api),
          pushed_(context.errors.check(context.api.push_device(context.ordinal), "cuCtxPushCurrent",
                                       [] { return std::string("making the device current"); })) {}
    ~current_device_scope() {
        if (pushed_.ok()) {
            static_cast<void>(api_.pop_device());
        }
    }
    current_device_scope(const current_device_scope &) = delete;
    current_device_scope &operator=(const current_device_scope &) = delete;

    [[nodiscard]] const status &why() const noexcept { return pushed_; }

private:
    const cuda_api &api_;
    const status pushed_;
};

// A context, whichever: for calls that name a stream or an event and so need no certain device. A thread that has none
// would be given one by the runtime, on a device that maybe nobody uses. Asked at each call: a program may pop what it
// pushed.
class any_context_scope {
public:
    explicit any_context_scope(cuda_context &context) {
        int has = 0;
        if (context.api.has_context(&has) == cudaSuccess && has == 0) {
            pushed_.emplace(context);
        }
    }
    [[nodiscard]] status why() const { return pushed_ ? pushed_->why() : status(); }

private:
    std::optional<current_device_scope> pushed_;
};

// For what is asked, and for what ends and needs no certain device.
class asking_scope {
public:
    explicit asking_scope(cuda_context &context) : relaxed_(context), any_(context) {}
    [[nodiscard]] status why() const { return any_.why(); }

private:
    const relaxed_capture_scope relaxed_;
    const any_context_scope any_;
};

// Both: for what creates, allocates or gives back.
class allocation_scope {
public:
    explicit allocation_scope(cuda_context &context) : relaxed_(context), current_(context) {}
    [[nodiscard]] const status &why() const noexcept { return current_.why(); }

private:
    const relaxed_capture_scope relaxed_;
    const current_device_scope current_;
};

}  // namespace ebb
