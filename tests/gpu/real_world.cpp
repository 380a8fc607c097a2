// The world of these tests on a GPU: CUDA itself, libebb and libebb_cuda.
#include "gpu_kernels.hpp"
#include "gpu_world.hpp"
#include "real_cuda_user.hpp"

namespace ebb::test {

namespace {

class real_world : public gpu_world {
public:
    const cuda_user &cuda() const override { return real_cuda_user(); }
    const chain_kernels &kernels() const override {
        static constexpr chain_kernels k_kernels{
            &launch_linear,         &launch_activate, &launch_activate_backward, &launch_weight_gradient,
            &launch_input_gradient, &launch_descend,  &launch_fill_random};
        return k_kernels;
    }
    chain_shape shape() const override { return {6, 1024, 512}; }
    ebb_status create_runtime(const runtime_wishes &wishes, ebb_runtime **runtime) override {
        ebb_runtime_options o{};
        o.struct_size = sizeof o;
        o.device = "cuda";
        o.policy = wishes.policy;
        o.min_offload_bytes = 1;
        o.device_budget_bytes = wishes.device_budget_bytes;
        o.staging_bytes = wishes.staging_bytes;
        o.max_activation_bytes = wishes.max_activation_bytes;
        o.source_bytes = wishes.gives_up_at_once ? EBB_SOURCES_NONE : EBB_SOURCES_AUTO;
        o.verify = wishes.verify ? EBB_ON : EBB_OFF;
        return ebb_runtime_create(&o, runtime);
    }
};

}  // namespace

std::unique_ptr<gpu_world> make_gpu_world() {
    return std::make_unique<real_world>();
}

}  // namespace ebb::test
