// Where a command writes: results to `out`; progress, notes and errors to `err`.
#pragma once

#include <ostream>

namespace ebb::cli {

struct terminal {
    std::ostream &out;
    std::ostream &err;
    bool err_is_terminal = false;  // somebody watches: progress is shown
};

}  // namespace ebb::cli
