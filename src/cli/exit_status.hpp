// What the program's exit status says.
#pragma once

#include "base/status.hpp"

namespace ebb::cli {

constexpr int k_done = 0;
constexpr int k_failed = 1;
constexpr int k_wrong_usage = 2;
constexpr int k_interrupted = 130;

// What was given cannot be right, or the work failed.
[[nodiscard]] inline int exit_status_of(const status &failure) noexcept {
    return failure.ok() ? k_done : failure.code() == code::invalid_argument ? k_wrong_usage : k_failed;
}

}  // namespace ebb::cli
