#include "cli/interrupt.hpp"

#include <unistd.h>

#include "cli/exit_status.hpp"

namespace ebb::cli {

namespace {

// Only what a signal handler may do. Nothing is left behind: simulated memory is the process's own, and no file is
// being written.
void end_now(int /*signal*/) {
    static const char k_text[] = "\nebb: interrupted\n";
    const ssize_t written = write(STDERR_FILENO, k_text, sizeof(k_text) - 1);
    static_cast<void>(written);
    _exit(k_interrupted);
}

}  // namespace

void end_at_interrupts() {
    struct sigaction action {};
    action.sa_handler = end_now;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

no_interrupts::no_interrupts() noexcept {
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGTERM);
    sigprocmask(SIG_BLOCK, &held, &before_);
}

no_interrupts::~no_interrupts() {
    sigprocmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace ebb::cli
