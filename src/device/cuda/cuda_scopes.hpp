// What a CUDA call needs of its thread, put back at the end of the scope.
#pragma once

#include "base/status.hpp"
#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_errors.hpp"

namespace ebb {

// While a thread captures in the global mode, CUDA forbids every other thread what could disturb a capture (to ask an
// event, to allocate), and a thread that does it spoils the capture. In the relaxed mode a thread may, and the capture
// stays whole: ours has nothing to do with it.
class relaxed_capture_scope {
public:
    explicit relaxed_capture_scope(const cuda_api &api) noexcept
        : api_(api), exchanged_(api.thread_exchange_stream_capture_mode(&mode_) == cudaSuccess) {}
    ~relaxed_capture_scope() {
        if (exchanged_) {
            static_cast<void>(api_.thread_exchange_stream_capture_mode(&mode_));
        }
    }
    relaxed_capture_scope(const relaxed_capture_scope &) = delete;
    relaxed_capture_scope &operator=(const relaxed_capture_scope &) = delete;

private:
    const cuda_api &api_;
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
    const bool exchanged_;
};

// The device is the thread's current one: for streams 0, 1 and 2, which mean the current device's, for kernels, and for
// what is created.
class current_device_scope {
public:
    current_device_scope(const cuda_api &api, cuda_errors &errors, int32_t ordinal)
        : api_(api), pushed_(errors.check(api.push_device(ordinal), "cuCtxPushCurrent", [] {
              return std::string("making the device current");
          })) {}
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

}  // namespace ebb
