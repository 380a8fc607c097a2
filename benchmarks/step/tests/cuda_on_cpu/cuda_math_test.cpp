// The operations of the GPU, kernels and products, on the CPU: against double precision, alone and in a whole model.
// That they are fast, and that the real libraries do what their doubles do, takes a GPU.
#include <gtest/gtest.h>

#include <cmath>

#include "cuda/cuda_math.hpp"
#include "direct_device.hpp"
#include "model_on_device.hpp"
#include "operands.hpp"
#include "operation_check.hpp"

namespace step {
namespace {

class cuda_on_cpu_device final : public direct_device<float> {
public:
    [[nodiscard]] step_math &math() override { return math_; }

private:
    growing_memory::allocator allocator_of(memory_kind kind) {
        return [this, kind](uint64_t size_bytes) { return allocate(kind, size_bytes); };
    }

    std::shared_ptr<void> products_workspace_ = allocate(memory_kind::scratch, 1024);
    cuda_products products_{nullptr, products_workspace_.get(), 1024};
    growing_memory scratch_{allocator_of(memory_kind::scratch)};
    growing_memory attention_workspace_{allocator_of(memory_kind::attention_workspace)};
    std::unique_ptr<cuda_attention> attention_ = make_own_attention({nullptr, &products_, &attention_workspace_});
    cuda_math math_{nullptr, products_, *attention_, scratch_};
};

TEST(cuda_math, agrees_with_double_precision) {
    cuda_on_cpu_device device;
    for (const operation_result &r : check_operations(device)) {
        EXPECT_TRUE(r.repeatable) << r.name;
        EXPECT_LE(r.error, r.tolerance) << r.name;
    }
}

class whole_model : public ::testing::TestWithParam<bool> {};

// The same weights on any device.
std::shared_ptr<void> upload_weights(step_device &device, int64_t count) {
    operands arrays(5);
    const operands::array weights = arrays.elements(count, 0, 0.3);
    arrays.upload(device);
    return arrays.keep(weights);
}

TEST_P(whole_model, has_the_gradients_of_double_precision) {
    const step_shape shape = test_shape(128, 256, 2, 48, GetParam());
    const int64_t count = offsets_of(shape).end;
    direct_device<double> exact_device;
    model_on_device exact(exact_device, shape, upload_weights(exact_device, count));
    cuda_on_cpu_device device;
    model_on_device model(device, shape, upload_weights(device, count));
    const double exact_loss = exact.forward();
    EXPECT_NEAR(model.forward(), exact_loss, 0.02 * exact_loss);
    exact.backward();
    model.backward();
    const std::vector<double> expected = exact.gradients<double>();
    const std::vector<double> got = model.gradients<float>();
    double along = 0;
    double squares = 0;
    double off = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        along += expected[i] * got[i];
        squares += expected[i] * expected[i];
        off += (expected[i] - got[i]) * (expected[i] - got[i]);
    }
    EXPECT_GT(squares, 0);
    EXPECT_LT(std::sqrt(off / squares), 0.03) << "of the gradients' length, where bf16 rounds by 0.4 % each time";
    EXPECT_NEAR(along / squares, 1, 0.01);
}

INSTANTIATE_TEST_SUITE_P(models, whole_model, ::testing::Bool(),
                         [](const auto &made) { return made.param ? "moe" : "dense"; });

}  // namespace
}  // namespace step
