// What commands that work on a step have in common: which machine, which model, how it is trained, and the budgets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.hpp"
#include "cli/command_line.hpp"
#include "model/step_settings.hpp"
#include "schedule/plan.hpp"

namespace ebb::cli {

struct model_arguments {
    std::string machine = "gb200-nvl72";
    std::string model;
    step_settings settings;
    // automatic, keep, offload, recompute, or a list of MaxText's names and values.
    std::string policy = "automatic";
    std::optional<uint64_t> device_bytes;
    std::optional<uint64_t> host_bytes;
    std::optional<uint64_t> chunk_bytes;
    memory_mode memory = memory_mode::one_pool;
    bool alone = false;
    // Of those that make a step out of dimensions, the first that was given: a recorded step has no use for it.
    std::string given_dimension;

    // `policy_meaning`: what the command does with it.
    void declare(command_line &line, const std::string &policy_meaning);
    // After the arguments were parsed.
    [[nodiscard]] status check(const command_line &line);

    [[nodiscard]] bool is_automatic() const { return policy == "automatic"; }
};

}  // namespace ebb::cli
