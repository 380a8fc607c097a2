// One line on standard error that says how far a long search is, on a terminal only; gone when the work is done.
#pragma once

#include <cstddef>
#include <string>

#include "cli/terminal.hpp"

namespace ebb::cli {

class progress {
public:
    explicit progress(terminal &io) : io_(io) {}
    ~progress() { clear(); }
    progress(const progress &) = delete;
    progress &operator=(const progress &) = delete;

    void show(const std::string &what);
    void clear();

private:
    terminal &io_;
    size_t shown_ = 0;  // characters
};

}  // namespace ebb::cli
