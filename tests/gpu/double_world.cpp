// The world of these tests on the double of CUDA.
#include <cmath>

#include "base/log.hpp"
#include "capi/session.hpp"
#include "cuda_double/checked_cuda.hpp"
#include "device/cuda/cuda_device.hpp"
#include "gpu_world.hpp"

namespace ebb::test {

namespace {

cuda_double *g_cuda = nullptr;  // of the world that lives

float random_at(uint64_t seed, uint64_t index) {
    uint64_t z = (seed + index * 0x9e3779b97f4a7c15U) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 31U)) * 0x94d049bb133111ebU;
    return static_cast<float>(static_cast<double>(z >> 40U) * 0x1p-23 - 1.0);
}

cudaError_t linear(cudaStream_t stream, const float *in, const float *weights, float *out, int rows, int width) {
    return g_cuda->launch_function(stream, [=] {
        for (int row = 0; row < rows; ++row) {
            for (int column = 0; column < width; ++column) {
                float sum = 0;
                for (int k = 0; k < width; ++k) {
                    sum += in[row * width + k] * weights[k * width + column];
                }
                out[row * width + column] = sum;
            }
        }
    });
}

cudaError_t activate(cudaStream_t stream, const float *in, float *out, int count) {
    return g_cuda->launch_function(stream, [=] {
        for (int i = 0; i < count; ++i) {
            out[i] = in[i] / (1.0F + std::fabs(in[i]));
        }
    });
}

cudaError_t activate_backward(cudaStream_t stream, const float *in, const float *upstream, float *out, int count) {
    return g_cuda->launch_function(stream, [=] {
        for (int i = 0; i < count; ++i) {
            const float slope = 1.0F / (1.0F + std::fabs(in[i]));
            out[i] = upstream[i] * slope * slope;
        }
    });
}

cudaError_t weight_gradient(cudaStream_t stream, const float *in, const float *upstream, float *gradient, int rows,
                            int width) {
    return g_cuda->launch_function(stream, [=] {
        for (int i = 0; i < width; ++i) {
            for (int j = 0; j < width; ++j) {
                float sum = 0;
                for (int row = 0; row < rows; ++row) {
                    sum += in[row * width + i] * upstream[row * width + j];
                }
                gradient[i * width + j] += sum;
            }
        }
    });
}

cudaError_t input_gradient(cudaStream_t stream, const float *upstream, const float *weights, float *out, int rows,
                           int width) {
    return g_cuda->launch_function(stream, [=] {
        for (int row = 0; row < rows; ++row) {
            for (int i = 0; i < width; ++i) {
                float sum = 0;
                for (int j = 0; j < width; ++j) {
                    sum += upstream[row * width + j] * weights[i * width + j];
                }
                out[row * width + i] = sum;
            }
        }
    });
}

cudaError_t descend(cudaStream_t stream, float *weights, const float *gradient, int count, float rate) {
    return g_cuda->launch_function(stream, [=] {
        for (int i = 0; i < count; ++i) {
            weights[i] -= rate * gradient[i];
        }
    });
}

cudaError_t fill_random(cudaStream_t stream, float *out, int count, uint64_t seed) {
    return g_cuda->launch_function(stream, [=] {
        for (int i = 0; i < count; ++i) {
            out[i] = random_at(seed, static_cast<uint64_t>(i));
        }
    });
}

class double_world : public gpu_world {
public:
    double_world() { g_cuda = &cuda_; }
    ~double_world() override { g_cuda = nullptr; }

    const cuda_user &cuda() const override { return cuda_double::user(); }
    const chain_kernels &kernels() const override {
        static constexpr chain_kernels k_kernels{&linear,         &activate, &activate_backward, &weight_gradient,
                                                 &input_gradient, &descend,  &fill_random};
        return k_kernels;
    }
    chain_shape shape() const override { return {6, 32, 16}; }
    ebb_status create_runtime(const runtime_wishes &wishes, ebb_runtime **runtime) override {
        runtime_options o;
        o.policy = wishes.policy == nullptr ? "auto" : wishes.policy;
        o.min_offload_bytes = 1;
        o.device_budget_bytes = wishes.device_budget_bytes;
        o.staging_bytes = wishes.staging_bytes;
        o.max_activation_bytes = wishes.max_activation_bytes;
        o.source_bytes = wishes.gives_up_at_once ? k_none_bytes : k_automatic;
        o.verify = wishes.verify;
        return capi::guarded([&]() -> status {
            result<std::unique_ptr<cuda_device>> dev = cuda_device::make(cuda_.api(), 0, {});
            EBB_TRY(dev.why());
            const result<ebb_runtime *> made = capi::make_runtime(
                std::move(dev).value(), nullptr, o, logger(nullptr, nullptr, log_level::warning), nullptr);
            EBB_TRY(made.why());
            *runtime = made.value();
            return {};
        });
    }

private:
    checked_cuda cuda_;
};

}  // namespace

std::unique_ptr<gpu_world> make_gpu_world() {
    return std::make_unique<double_world>();
}

}  // namespace ebb::test
