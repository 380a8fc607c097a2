// The program's commands. Each takes the arguments after its name and gives the exit status.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal.hpp"

namespace ebb::cli {

using arguments = std::vector<std::string>;

int machines_command(const arguments &args, terminal &io);
int models_command(const arguments &args, terminal &io);
int plan_command(const arguments &args, terminal &io);
int simulate_command(const arguments &args, terminal &io);
int tables_command(const arguments &args, terminal &io);

// All of them: `ebb COMMAND ...`.
int run_ebb(const arguments &args, terminal &io);

}  // namespace ebb::cli
