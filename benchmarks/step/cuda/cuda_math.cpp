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
    matrix_product p;
    p.rows = c.rows;
    p.columns = c.columns;
    p.inner = c.inner;
    p.left = {c.left, c.inner};
    p.right = {c.right, c.columns};
    p.plus = c.plus;
    p.output = {c.output, c.columns};
    products_.run(p);
}

void cuda_math::run(const multiply_back_call &c) {
    matrix_product p;
    p.rows = c.rows;
    p.columns = c.inner;
    p.inner = c.columns;
    p.left = {c.left, c.columns};
    p.right = {c.right, c.columns, true};
    p.plus = c.plus;
    p.output = {c.output, c.inner};
    products_.run(p);
}

void cuda_math::run(const weight_gradient_call &c) {
    matrix_product p;
    p.rows = c.inner;
    p.columns = c.columns;
    p.inner = c.rows;
    p.left = {c.input, c.inner, true};
    p.right = {c.upstream, c.columns};
    p.plus = c.gradient;
    p.output = {c.gradient, c.columns};
    p.float_output = true;
    products_.run(p);
}

void cuda_math::run(const attention_call &c) {
    attention_.run(c);
}

void cuda_math::run(const attention_backward_call &c) {
    attention_.run(c);
}

}  // namespace step
