// Attention on a GPU: by cuDNN's graph API, or by products and kernels of our own.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "../step_math.hpp"
#include "cuda_products.hpp"
#include "growing_memory.hpp"

namespace step {

class cuda_attention {
public:
    cuda_attention() = default;
    virtual ~cuda_attention() = default;
    cuda_attention(const cuda_attention &) = delete;
    cuda_attention &operator=(const cuda_attention &) = delete;

    virtual void run(const attention_call &c) = 0;
    virtual void run(const attention_backward_call &c) = 0;
};

struct attention_tools {
    cudaStream_t stream;
    cuda_products &products;
    growing_memory &workspace;
};

// A block of queries at a time, all heads together: scores and probabilities lie in the workspace.
[[nodiscard]] std::unique_ptr<cuda_attention> make_own_attention(const attention_tools &tools);

// Null, and why, where this build or the cuDNN that is there cannot do it for this shape; its arrays are not looked at.
[[nodiscard]] std::unique_ptr<cuda_attention> make_cudnn_attention(const attention_tools &tools,
                                                                   const attention_call &shape,
                                                                   std::string &name_or_why_not);

}  // namespace step
