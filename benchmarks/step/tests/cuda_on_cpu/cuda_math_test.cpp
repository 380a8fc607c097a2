// The operations of the GPU, kernels and products, on the CPU: against double precision, alone and in a whole model.
// That they are fast, and that the real libraries do what their doubles do, takes a GPU.
#include <gtest/gtest.h>

#include <cmath>

#include "cuda/cuda_math.hpp"
#include "direct_device.hpp"
#include "layer_math.hpp"
#include "operands.hpp"
#include "operation_check.hpp"
#include "random_values.hpp"

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

// What a whole model computes, with any operations.
class small_model {
public:
    small_model(step_device &device, bool with_experts) : device_(device) {
        shape_.layers = 2;
        shape_.width = 128;
        shape_.heads = 2;
        shape_.ffn = 128;
        shape_.sequence = 48;
        shape_.micro_batch = 2;
        if (with_experts) {
            shape_.experts = 8;
            shape_.top_k = 2;
            shape_.capacity_factor = 1.1;
        }
        count_ = offsets_of(shape_).end;
        operands weights(5);
        const auto values = weights.elements(count_, 0, 0.3);
        weights.upload(device);
        weights_ = weights.keep(values);
        gradients_ = device.allocate(memory_kind::weights, static_cast<uint64_t>(count_) * device.math().real_bytes());
        device.math().run(clear_call{gradients_.get(), static_cast<uint64_t>(count_) * device.math().real_bytes()});
    }

    double train() {
        layer_math math(device_, shape_, {weights_.get(), gradients_.get()});
        const routing_tables tables(device_, shape_, 3);
        std::vector<uint8_t> tokens(static_cast<size_t>(shape_.micro_batch * (shape_.sequence + 1)));
        for (size_t i = 0; i < tokens.size(); ++i) {
            tokens[i] = static_cast<uint8_t>(i * 37 % 251);
        }
        const std::shared_ptr<void> on_device = device_.allocate(memory_kind::scratch, tokens.size());
        device_.upload(on_device.get(), tokens.data(), tokens.size());
        const auto *const first = static_cast<const uint8_t *>(on_device.get());
        std::vector<layer_arrays> layers;
        std::shared_ptr<void> hidden = new_array();
        math.embed(first, hidden.get());
        for (int64_t layer = 0; layer < shape_.layers; ++layer) {
            layer_arrays &a = layers.emplace_back();
            a.at = offsets_of_layer(shape_, layer);
            a.route = tables.of(0, 0, layer);
            for (void *&saved : a.saved) {
                saved = new_array().get();
            }
            a.saved[k_input] = hidden.get();
            hidden = new_array();
            a.output = hidden.get();
            math.project(a);
            math.attend(a);
            math.project_out(a);
            math.mlp(a);
        }
        double loss = 0;
        math.head(first, hidden.get(), 1.0 / static_cast<double>(shape_.tokens()), &loss);
        for (auto a = layers.rbegin(); a != layers.rend(); ++a) {
            math.mlp_backward(*a);
            math.attention_backward(*a);
        }
        math.embed_backward(first);
        return loss;
    }

    template <class real_type>
    std::vector<double> gradients() {
        const auto *const first = static_cast<const real_type *>(gradients_.get());
        return {first, first + count_};
    }

private:
    std::shared_ptr<void> new_array() {
        const int64_t elements = std::max(shape_.most_ffn_rows() * shape_.ffn, shape_.hidden_elements());
        arrays_.push_back(device_.allocate(memory_kind::activations, static_cast<uint64_t>(elements) * sizeof(double)));
        return arrays_.back();
    }

    step_device &device_;
    step_shape shape_;
    int64_t count_ = 0;
    std::shared_ptr<void> weights_, gradients_;
    std::vector<std::shared_ptr<void>> arrays_;
};

class whole_model : public ::testing::TestWithParam<bool> {};

TEST_P(whole_model, has_the_gradients_of_double_precision) {
    direct_device<double> exact_device;
    small_model exact(exact_device, GetParam());
    const double exact_loss = exact.train();
    cuda_on_cpu_device device;
    small_model model(device, GetParam());
    EXPECT_NEAR(model.train(), exact_loss, 0.02 * exact_loss);
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
