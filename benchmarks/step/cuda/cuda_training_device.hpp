// The training loop's side of a GPU: streams, memory and the steps' ends.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <vector>

#include "cuda_memory.hpp"
#include "training_device.hpp"

namespace step {

class cuda_training_device final : public train::training_device {
public:
    // allocate is what allocate_bytes calls.
    using allocator = std::function<std::shared_ptr<void>(uint64_t size_bytes)>;
    cuda_training_device(const ebb_runtime_options &options, int64_t steps, uint64_t memory_cap_bytes,
                         allocator allocate);
    ~cuda_training_device() override;

    std::shared_ptr<void> allocate_bytes(uint64_t size_bytes) override { return allocate_(size_bytes); }
    void synchronize() override;
    void begin_step(int64_t step) override { step_ = step; }
    void end_step() override;
    void wait_for_steps(int64_t count) override;
    double *loss_of(int64_t step) override { return losses_ + step; }
    void begin_timing() override;
    [[nodiscard]] std::vector<double> step_seconds() const override;

    [[nodiscard]] cudaStream_t compute() const { return compute_; }
    [[nodiscard]] cuda_memory &memory() { return *memory_; }

private:
    void release();

    allocator allocate_;
    cudaStream_t compute_ = nullptr;
    std::unique_ptr<cuda_memory> memory_;
    double *losses_ = nullptr;  // pinned: kernels write there
    std::vector<cudaEvent_t> ends_;
    cudaEvent_t timing_began_ = nullptr;
    int64_t step_ = 0;
    int64_t first_timed_step_ = 0;
};

}  // namespace step
