// What a training program needs of a device: a runtime of Ebb, the stream that computes, memory, and the steps' ends.
// And the one on Ebb's host device, which computes with functions on a thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "argument_arena.hpp"
#include "ebb/ebb.h"
#include "step_log.hpp"

namespace train {

class training_device {
public:
    training_device() = default;
    virtual ~training_device() = default;
    training_device(const training_device &) = delete;
    training_device &operator=(const training_device &) = delete;

    [[nodiscard]] ebb_runtime *runtime() const { return runtime_; }
    [[nodiscard]] ebb_stream stream() const { return stream_; }

    // Freed when the last owner lets go, and reused in the order of the compute stream. Throws call_failed with
    // EBB_OUT_OF_DEVICE_MEMORY.
    virtual std::shared_ptr<void> allocate_bytes(uint64_t size_bytes) = 0;
    // Blocks until the compute stream is empty.
    virtual void synchronize() = 0;

    // What is launched between these is a step. The second enqueues its end.
    virtual void begin_step(int64_t step) = 0;
    virtual void end_step() = 0;
    // Blocks until so many steps have ended.
    virtual void wait_for_steps(int64_t count) = 0;
    // Where kernels add a step's loss; to be read when it has ended.
    virtual double *loss_of(int64_t step) = 0;
    // The time of each step since begin_timing, which is called while none is running.
    virtual void begin_timing() = 0;
    [[nodiscard]] virtual std::vector<double> step_seconds() const = 0;

protected:
    ebb_runtime *runtime_ = nullptr;
    ebb_stream stream_ = 0;
};

class host_training_device : public training_device {
public:
    host_training_device(const ebb_runtime_options &options, int64_t steps);
    ~host_training_device() override;

    std::shared_ptr<void> allocate_bytes(uint64_t size_bytes) override;
    std::shared_ptr<float> allocate(int64_t elements);
    void synchronize() override;

    void begin_step(int64_t step) override;
    void end_step() override;
    void wait_for_steps(int64_t count) override { log_.wait_for(count); }
    double *loss_of(int64_t step) override { return &log_.losses[static_cast<size_t>(step)]; }
    void begin_timing() override;
    [[nodiscard]] std::vector<double> step_seconds() const override;

    // Runs kernel(arguments) on the compute stream, after everything launched before.
    template <class arguments>
    void launch(void (*kernel)(const arguments &), const arguments &values) {
        struct call {
            void (*kernel)(const arguments &);
            arguments values;
        };
        void *const memory = arguments_->take(sizeof(call), alignof(call));
        launch_call([](void *c) { static_cast<call *>(c)->kernel(static_cast<call *>(c)->values); },
                    new (memory) call{kernel, values});
    }
    argument_arena &arguments() { return *arguments_; }

private:
    void launch_call(void (*function)(void *), void *argument);

    step_log log_;
    argument_arena first_arguments_;
    argument_arena step_arguments_[2];  // of the running step and of the one launched ahead
    argument_arena *arguments_ = &first_arguments_;
    int64_t step_ = 0;
    int64_t first_timed_step_ = 0;
    step_log::clock::time_point timing_began_;
};

}  // namespace train
