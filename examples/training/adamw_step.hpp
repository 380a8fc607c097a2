// The constants of AdamW, and how they change with the steps.
#pragma once

#include <cmath>
#include <cstdint>

namespace train {

// Steps count from 1.
struct adamw_step {
    adamw_step(int64_t step, double learning_rate)
        : rate(learning_rate / (1.0 - std::pow(k_beta1, static_cast<double>(step)))),
          correction(1.0 / (1.0 - std::pow(k_beta2, static_cast<double>(step)))),
          keep(1.0 - learning_rate * k_decay) {}

    static constexpr double k_beta1 = 0.9;
    static constexpr double k_beta2 = 0.95;
    static constexpr double k_decay = 0.01;
    double rate, correction, keep;
};

}  // namespace train
