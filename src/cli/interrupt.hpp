// Ctrl-C ends the program at once with status 130. Results are written in one piece when they are complete, and that
// is not interrupted: what is there is whole or not there.
#pragma once

#include <csignal>

namespace ebb::cli {

// SIGINT and SIGTERM.
void end_at_interrupts();

// While one lives, an interrupt waits.
class no_interrupts {
public:
    no_interrupts() noexcept;
    ~no_interrupts();
    no_interrupts(const no_interrupts &) = delete;
    no_interrupts &operator=(const no_interrupts &) = delete;

private:
    sigset_t before_{};
};

}  // namespace ebb::cli
