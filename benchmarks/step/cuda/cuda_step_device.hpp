// A GPU to train on.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "../gpu.hpp"
#include "collectives.hpp"
#include "cuda_attention.hpp"
#include "cuda_math.hpp"
#include "cuda_training_device.hpp"

namespace step {

class cuda_step_device final : public step_device {
public:
    // Of a GPU, from one run to the next.
    struct kept {
        collectives *sums = nullptr;  // null: none
        std::unique_ptr<cudnn_attention> attention;
    };
    // `from_run_to_run` must live as long.
    cuda_step_device(const gpu_options &options, kept &from_run_to_run, int64_t rank);
    ~cuda_step_device() override;

    [[nodiscard]] train::training_device &training() override { return training_; }
    [[nodiscard]] step_math &math() override { return math_; }
    std::shared_ptr<void> allocate(memory_kind kind, uint64_t size_bytes) override;
    void upload(void *to, const void *from, uint64_t size_bytes) override;
    void download(void *to, const void *from, uint64_t size_bytes) override;

    [[nodiscard]] ebb_stream collective_stream() override;
    void begin_collective() override;
    void average(float *values, int64_t count) override;
    void wait_for_collectives() override;

    [[nodiscard]] uint64_t peak_used_bytes() override;
    [[nodiscard]] copy_rates measure_copies() override;
    [[nodiscard]] device_facts facts() const override { return facts_; }

private:
    [[nodiscard]] growing_memory::allocator allocator_of(memory_kind kind) {
        return [this, kind](uint64_t size_bytes) { return allocate(kind, size_bytes); };
    }
    [[nodiscard]] cuda_attention &choose_attention(const gpu_options &options);

    kept &kept_;
    int64_t rank_;
    device_facts facts_;
    uint64_t peak_used_bytes_ = 0;
    cuda_training_device training_;
    std::shared_ptr<void> products_workspace_;
    cuda_products products_;
    growing_memory scratch_, attention_workspace_;
    std::unique_ptr<cuda_attention> own_attention_;
    cuda_math math_;
    cudaStream_t collective_ = nullptr;
    cudaEvent_t ready_ = nullptr, summed_ = nullptr;
};

}  // namespace step
