// The whole model's gradients against finite differences of its loss, in double precision, on a model small enough to
// try a sample of every weight; dense and with experts, some of whose tokens find no room.
#include "layer_math.hpp"

#include <gtest/gtest.h>

#include "direct_device.hpp"
#include "finite_differences.hpp"
#include "model_on_device.hpp"
#include "random_values.hpp"

namespace step {
namespace {

class layer_gradients : public ::testing::TestWithParam<bool> {
protected:
    layer_gradients() {
        for (int64_t i = 0; i < count; ++i) {
            weights()[i] = random_unit(1, static_cast<uint64_t>(i)) - 0.5;
        }
    }
    [[nodiscard]] double *weights() const { return static_cast<double *>(memory.get()); }

    const step_shape shape = test_shape(12, 20, 3, 10, GetParam());
    const int64_t count = offsets_of(shape).end;
    direct_device<double> device;
    std::shared_ptr<void> memory = device.allocate(memory_kind::weights, static_cast<uint64_t>(count) * sizeof(double));
    model_on_device model{device, shape, memory};
};

TEST_P(layer_gradients, agree_with_finite_differences) {
    model.forward();
    model.backward();
    const std::vector<double> gradients = model.gradients<double>();
    constexpr size_t k_stride = 13;  // no multiple of a dimension: every part of every weight is met
    train::expect_gradients(weights(), gradients.data(), gradients.size(), k_stride, {1e-8, 1e-5},
                            [&] { return model.forward(); });
}

// A part writes what is wanted of it alone.
TEST_P(layer_gradients, parts_computed_again_give_the_same_bits) {
    model.forward();
    struct part {
        void (layer_math::*run)(const layer_arrays &);
        std::vector<size_t> writes;
    };
    for (const part &p :
         {part{&layer_math::project, {k_query, k_key, k_value}}, part{&layer_math::attend, {k_context, k_log_sum}},
          part{&layer_math::project_out, {k_out_projection}}, part{&layer_math::mlp, {k_gate, k_up}}}) {
        for (const size_t id : p.writes) {
            layer_arrays a = model.arrays_of(1);
            a.output = nullptr;
            for (const size_t other : p.writes) {
                a.saved[other] = nullptr;
            }
            const std::shared_ptr<void> again = model.new_array();
            a.saved[id] = again.get();
            (model.math().*p.run)(a);
            EXPECT_EQ(std::memcmp(again.get(), model.saved(1, id).get(), model.array_bytes()), 0) << id;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(models, layer_gradients, ::testing::Bool(),
                         [](const auto &made) { return made.param ? "moe" : "dense"; });

}  // namespace
}  // namespace step
