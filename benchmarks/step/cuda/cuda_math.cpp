#include "cuda_math.hpp"

#include "cuda_calls.hpp"
#include "cuda_kernels.hpp"

namespace step {

// Operations that are one kernel.
#define EBB_STEP_LAUNCH(call)             \
    void cuda_math::run(const call &c) {  \
        launch(c, stream_);               \
        check(cudaGetLastError(), #call); \
    }
EBB_STEP_LAUNCH(fill_call)
EBB_STEP_LAUNCH(embed_call)
EBB_STEP_LAUNCH(embed_backward_call)
EBB_STEP_LAUNCH(norm_call)
EBB_STEP_LAUNCH(swiglu_call)
EBB_STEP_LAUNCH(swiglu_backward_call)
EBB_STEP_LAUNCH(gates_call)
EBB_STEP_LAUNCH(gather_call)
EBB_STEP_LAUNCH(combine_call)
EBB_STEP_LAUNCH(adamw_call)
#undef EBB_STEP_LAUNCH

// And those that add up in scratch memory.
#define EBB_STEP_LAUNCH(call)                                    \
    void cuda_math::run(const call &c) {                         \
        launch(c, scratch_.at_least(scratch_bytes(c)), stream_); \
        check(cudaGetLastError(), #call);                        \
    }
EBB_STEP_LAUNCH(norm_backward_call)
EBB_STEP_LAUNCH(cross_entropy_call)
#undef EBB_STEP_LAUNCH

void cuda_math::run(const clear_call &c) {
    check(cudaMemsetAsync(c.memory, 0, c.size_bytes, stream_), "cudaMemsetAsync");
}

void cuda_math::run(const gates_backward_call &c) {
    run(clear_call{c.d_logits, static_cast<uint64_t>(c.tokens * c.experts) * element_bytes()});
    launch(c, stream_);
    check(cudaGetLastError(), "gates_backward_call");
}

void cuda_math::run(const multiply_call &c) {
    products_.run({c.rows, c.columns, c.inner, {c.left, c.inner}, {c.right, c.columns}, c.plus, {c.output, c.columns}});
}

void cuda_math::run(const multiply_back_call &c) {
    const matrix right{c.right, c.columns, true};
    products_.run({c.rows, c.inner, c.columns, {c.left, c.columns}, right, c.plus, {c.output, c.inner}});
}

void cuda_math::run(const weight_gradient_call &c) {
    const matrix input{c.input, c.inner, true};
    const matrix upstream{c.upstream, c.columns};
    products_.run({c.inner, c.columns, c.rows, input, upstream, c.gradient, {c.gradient, c.columns}, true});
}

void cuda_math::run(const attention_call &c) {
    attention_.run(c);
}

void cuda_math::run(const attention_backward_call &c) {
    attention_.run(c);
}

}  // namespace step
