// The operations on the CPU: enqueued on the host device's compute stream, or carried out at once.
#pragma once

#include "cpu_kernels.hpp"
#include "step_math.hpp"
#include "training_device.hpp"

namespace step {

class cpu_math final : public step_math {
public:
    explicit cpu_math(train::host_training_device &device) : device_(device) {}

    [[nodiscard]] uint64_t element_bytes() const override { return sizeof(float); }
    [[nodiscard]] uint64_t real_bytes() const override { return sizeof(float); }

#define EBB_STEP_RUN(call)                       \
    void run(const call &c) override {           \
        device_.launch<call>(compute<float>, c); \
    }
    EBB_STEP_CALLS(EBB_STEP_RUN)
#undef EBB_STEP_RUN

private:
    train::host_training_device &device_;
};

// On the calling thread, on any memory of the process.
template <class scalar>
class direct_math : public step_math {
public:
    [[nodiscard]] uint64_t element_bytes() const override { return sizeof(scalar); }
    [[nodiscard]] uint64_t real_bytes() const override { return sizeof(scalar); }

#define EBB_STEP_RUN(call)             \
    void run(const call &c) override { \
        compute<scalar>(c);            \
    }
    EBB_STEP_CALLS(EBB_STEP_RUN)
#undef EBB_STEP_RUN
};

}  // namespace step
