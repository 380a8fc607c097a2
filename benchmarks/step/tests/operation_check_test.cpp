// That --check sees an operation that is wrong, or not the same twice.
#include "operation_check.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "direct_device.hpp"
#include "operands.hpp"

namespace step {
namespace {

std::vector<std::string> bad_ones(const std::vector<operation_result> &results) {
    std::vector<std::string> names;
    for (const operation_result &r : results) {
        if (!r.good()) {
            names.push_back(r.name);
        }
    }
    return names;
}

class wrong_math : public direct_math<float> {
public:
    using direct_math<float>::run;
    void run(const gates_call &c) override {
        direct_math<float>::run(c);
        static_cast<float *>(c.gates)[7] *= 1.001F;
    }
    void run(const gather_call &c) override {
        direct_math<float>::run(c);
        static_cast<float *>(c.output)[3] += static_cast<float>(++calls_) * 1e-7F;
    }

private:
    int calls_ = 0;
};

class wrong_device final : public direct_device<float> {
public:
    [[nodiscard]] step_math &math() override { return math_; }

private:
    wrong_math math_;
};

TEST(operation_check, finds_what_is_wrong_and_nothing_else) {
    direct_device<float> right;
    EXPECT_EQ(bad_ones(check_operations(right)), std::vector<std::string>{});
    wrong_device wrong;
    const std::vector<operation_result> results = check_operations(wrong);
    EXPECT_EQ(bad_ones(results), (std::vector<std::string>{"gates", "gather_and_combine"}));
    for (const operation_result &r : results) {
        EXPECT_EQ(r.repeatable, r.name != "gather_and_combine") << r.name;
    }
}

TEST(operands, bf16_rounds_to_nearest_even) {
    EXPECT_EQ(from_bf16(to_bf16(1.0)), 1.0);
    EXPECT_EQ(from_bf16(to_bf16(-2.5)), -2.5);
    EXPECT_EQ(from_bf16(to_bf16(1 + 0x1p-8)), 1.0);             // a tie: down to even
    EXPECT_EQ(from_bf16(to_bf16(1 + 3 * 0x1p-8)), 1 + 0x1p-6);  // a tie: up to even
    EXPECT_EQ(from_bf16(to_bf16(1 + 0x1p-8 + 0x1p-12)), 1 + 0x1p-7);
}

}  // namespace
}  // namespace step
