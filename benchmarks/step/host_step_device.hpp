// Training on Ebb's host device.
#pragma once

#include "cpu_math.hpp"
#include "step_device.hpp"

namespace step {

class host_step_device final : public step_device {
public:
    host_step_device(const ebb_runtime_options &options, int64_t steps);

    [[nodiscard]] train::training_device &training() override { return device_; }
    [[nodiscard]] step_math &math() override { return math_; }
    std::shared_ptr<void> allocate(memory_kind kind, uint64_t size_bytes) override;
    void upload(void *to, const void *from, uint64_t size_bytes) override;
    void download(void *to, const void *from, uint64_t size_bytes) override;

    // One device alone: there is nothing to sum. The compute stream stands for the collectives'.
    [[nodiscard]] ebb_stream collective_stream() override { return device_.stream(); }
    void begin_collective() override {}
    void average(float * /*values*/, int64_t /*count*/) override {}
    void wait_for_collectives() override {}

    [[nodiscard]] uint64_t peak_used_bytes() override;
    [[nodiscard]] copy_rates measure_copies() override { return rates_; }
    [[nodiscard]] device_facts facts() const override { return {"host", "own", "none", ""}; }

private:
    class counting_device final : public train::host_training_device {
    public:
        counting_device(const ebb_runtime_options &options, int64_t steps, host_step_device &owner)
            : host_training_device(options, steps), owner_(owner) {}
        std::shared_ptr<void> allocate_bytes(uint64_t size_bytes) override {
            return owner_.allocate(memory_kind::activations, size_bytes);
        }
        std::shared_ptr<void> allocate_uncounted(uint64_t size_bytes) {
            return host_training_device::allocate_bytes(size_bytes);
        }

    private:
        host_step_device &owner_;
    };

    copy_rates rates_;
    counting_device device_;
    cpu_math math_;
};

}  // namespace step
