// The operations at once on the calling thread, on memory of the process: enough of a device for what does not train.
#pragma once

#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "cpu_math.hpp"
#include "step_device.hpp"

namespace step {

template <class scalar>
class direct_device : public step_device {
public:
    [[nodiscard]] train::training_device &training() override { throw std::logic_error("it does not train"); }
    [[nodiscard]] step_math &math() override { return math_; }
    std::shared_ptr<void> allocate(memory_kind kind, uint64_t size_bytes) override {
        // Which instructions Eigen takes, and so how sums are rounded, depends on alignment.
        constexpr uint64_t k_align = 512;
        const uint64_t rounded = (size_bytes + k_align - 1) / k_align * k_align;
        return counted(kind, size_bytes, {std::aligned_alloc(k_align, rounded), std::free});
    }
    void upload(void *to, const void *from, uint64_t size_bytes) override { std::memcpy(to, from, size_bytes); }
    void download(void *to, const void *from, uint64_t size_bytes) override { std::memcpy(to, from, size_bytes); }
    [[nodiscard]] ebb_stream collective_stream() override { return 0; }
    void begin_collective() override {}
    void average(float * /*values*/, int64_t /*count*/) override {}
    void wait_for_collectives() override {}
    [[nodiscard]] uint64_t peak_used_bytes() override { return 0; }
    [[nodiscard]] copy_rates measure_copies() override { return {}; }
    [[nodiscard]] device_facts facts() const override { return {}; }

private:
    direct_math<scalar> math_;
};

}  // namespace step
