// What the command line of a program that compares modes says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model_shape.hpp"
#include "modes.hpp"

namespace train {

struct run_settings {
    model_shape shape;
    int64_t large_micro_batch = 0;  // 0: none
    int64_t accumulation = 0;       // micro batches of a step
    int64_t steps = 0;
    int64_t warm_up_steps = 2;  // not timed: the first is recorded, in the second staging is taken
    uint64_t seed = 1;
    double learning_rate = 1e-3;
    offload_settings offload;
    std::vector<std::string> modes;
    bool json = false;

    [[nodiscard]] int64_t tokens_per_step() const { return shape.tokens() * accumulation; }
};

}  // namespace train
