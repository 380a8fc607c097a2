#include <stdexcept>

#include "cuda_attention.hpp"

namespace step {

std::unique_ptr<cudnn_attention> make_cudnn_attention() {
    throw std::runtime_error("this build found no cuDNN with the headers of cudnn_frontend (EBB_CUDNN_FRONTEND_DIR)");
}

}  // namespace step
