// Attention on a GPU: by cuDNN's graph API, or by products and kernels of our own.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "../step_math.hpp"
#include "cuda_products.hpp"
#include "growing_memory.hpp"

namespace step {

struct attention_tools {
    cudaStream_t stream;
    cuda_products *products;
    growing_memory *workspace;
};

class cuda_attention {
public:
    cuda_attention() = default;
    virtual ~cuda_attention() = default;
    cuda_attention(const cuda_attention &) = delete;
    cuda_attention &operator=(const cuda_attention &) = delete;

    virtual void run(const attention_call &c) = 0;
    virtual void run(const attention_backward_call &c) = 0;
};

// A block of queries at a time, all heads together: scores and probabilities lie in the workspace.
[[nodiscard]] std::unique_ptr<cuda_attention> make_own_attention(const attention_tools &tools);

// Building a graph takes long: it is kept from one device object to the next, each of which lends its tools.
class cudnn_attention : public cuda_attention {
public:
    // Throws std::runtime_error where cuDNN cannot do it; the arrays of `shape` are not looked at.
    virtual void use(const attention_tools &tools, const attention_call &shape) = 0;
    [[nodiscard]] virtual std::string name() const = 0;
};

// For the current GPU. Throws std::runtime_error where this build has none.
[[nodiscard]] std::unique_ptr<cudnn_attention> make_cudnn_attention();

}  // namespace step
