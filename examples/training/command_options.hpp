// Options that programs comparing modes share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "run_settings.hpp"

namespace train {

// Sizes of the model and of a run.
void add_model_options(CLI::App &app, run_settings &s);
// Budgets, caps and the link.
void add_offload_options(CLI::App &app, offload_settings &s);
// Which modes, and how results are shown; the modes and exit statuses in the footer.
void add_output_options(CLI::App &app, run_settings &s);

// The exit status if the program ends here: help was printed, or what is wrong was. complaint() says what options say
// wrong together; empty: nothing.
std::optional<int> parse_options(CLI::App &app, int argc, char **argv, const std::function<std::string()> &complaint);

// What is wrong with sizes. Empty: nothing.
std::string complaint_about_heads(const model_shape &shape);
// Of a model that takes so much memory, on the host device. In floating point, since what is too large may be far too
// large.
struct model_bytes {
    double saved = 0;
    double weights = 0;
};
std::string complaint_about_memory(const offload_settings &s, const model_bytes &needed);

}  // namespace train
