// Compares what a device's operations give with the same in double precision on the CPU, and with themselves.
#pragma once

#include <string>
#include <vector>

#include "step_device.hpp"

namespace step {

struct operation_result {
    std::string name;
    double error = 0;      // the largest difference, of a value and its array's root mean square together
    double tolerance = 0;  // what rounding may make of it
    bool repeatable = false;

    [[nodiscard]] bool good() const { return error <= tolerance && repeatable; }
};

// On random arrays that bf16 can hold.
[[nodiscard]] std::vector<operation_result> check_operations(step_device &device);

}  // namespace step
