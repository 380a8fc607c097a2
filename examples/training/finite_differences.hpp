// For tests: gradients against finite differences.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <functional>

namespace train {

struct near {
    double absolute;
    double relative;
};

// Of so many values, every stride-th one's gradient must be that of loss(). Many must have one that is not 0, else
// nothing would be shown.
inline void expect_gradients(double *values, const double *gradients, size_t count, size_t stride, near tolerance,
                             const std::function<double()> &loss) {
    constexpr double k_difference = 1e-5;
    size_t tried = 0;
    size_t not_zero = 0;
    for (size_t i = 0; i < count; i += stride, ++tried) {
        const double value = values[i];
        values[i] = value + k_difference;
        const double above = loss();
        values[i] = value - k_difference;
        const double below = loss();
        values[i] = value;
        const double expected = (above - below) / (2 * k_difference);
        ASSERT_NEAR(gradients[i], expected, tolerance.absolute + tolerance.relative * std::abs(expected))
            << "value " << i;
        not_zero += static_cast<size_t>(expected != 0.0);
    }
    EXPECT_GT(not_zero, tried / 3) << "many values must matter";
}

}  // namespace train
