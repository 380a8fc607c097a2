// What the command line says.
#pragma once

#include <optional>
#include <string>

#include "run_settings.hpp"

namespace train {

struct settings : run_settings {
    settings();

    std::string text_path;
};

saved_sizes saved_by(const model_shape &shape);

struct parsed {
    settings values;
    std::optional<int> exit_code;  // help was printed, or the arguments are wrong and why was said
};
parsed parse_command_line(int argc, char **argv);

}  // namespace train
