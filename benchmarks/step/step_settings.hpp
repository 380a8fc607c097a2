// What the command line says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "run_settings.hpp"
#include "step_shape.hpp"
#include "training_loop.hpp"

namespace step {

struct step_settings : train::run_settings {
    std::string device;
    std::string model;  // dense or moe
    // Of moe.
    int64_t experts = 0;
    int64_t top_k = 0;
    double capacity_factor = 0;
    int64_t auto_warm_up_steps = 0;  // offload-auto's: until its plan stands
    int64_t gpus = 1;                // 0: all
    std::string attention = "auto";  // or cudnn or own
    bool check = false;              // compare operations and gradients instead

    [[nodiscard]] step_shape shape_at(int64_t micro_batch) const;
    [[nodiscard]] uint64_t element_bytes() const { return device == "cuda" ? 2 : 4; }
    [[nodiscard]] train::loop_settings loop_of(const std::string &mode) const;
};

// With the most rows that a routing may have.
[[nodiscard]] train::saved_sizes saved_by(const step_shape &shape, uint64_t element_bytes);

// By default what fits the device: a step takes about a second, and copies about as long as computing.
[[nodiscard]] step_settings default_settings(const std::string &device, const std::string &model);

struct parsed {
    step_settings values;
    std::optional<int> exit_code;  // help was printed, or the arguments are wrong and why was said
};
parsed parse_command_line(int argc, char **argv);

}  // namespace step
