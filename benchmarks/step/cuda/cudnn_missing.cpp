#include "cuda_attention.hpp"

namespace step {

std::unique_ptr<cuda_attention> make_cudnn_attention(const attention_tools & /*tools*/,
                                                     const attention_call & /*shape*/, std::string &name_or_why_not) {
    name_or_why_not = "this build found no cuDNN with the headers of cudnn_frontend (EBB_CUDNN_FRONTEND_DIR)";
    return nullptr;
}

}  // namespace step
