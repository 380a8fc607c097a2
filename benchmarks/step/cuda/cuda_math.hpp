// The operations on a GPU: products by cuBLASLt, attention by cuDNN or our own, kernels for the rest.
#pragma once

#include <memory>

#include "../step_math.hpp"
#include "cuda_attention.hpp"
#include "cuda_products.hpp"
#include "growing_memory.hpp"

namespace step {

class cuda_math final : public step_math {
public:
    // All must live as long.
    cuda_math(cudaStream_t stream, cuda_products &products, cuda_attention &attention, growing_memory &scratch)
        : stream_(stream), products_(products), attention_(attention), scratch_(scratch) {}

    [[nodiscard]] uint64_t element_bytes() const override { return 2; }
    [[nodiscard]] uint64_t real_bytes() const override { return 4; }

#define EBB_STEP_RUN(call) void run(const call &c) override;
    EBB_STEP_CALLS(EBB_STEP_RUN)
#undef EBB_STEP_RUN

private:
    cudaStream_t stream_;
    cuda_products &products_;
    cuda_attention &attention_;
    growing_memory &scratch_;
};

}  // namespace step
