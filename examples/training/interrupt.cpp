#include "interrupt.hpp"

#include <csignal>

namespace train {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

void note(int /*signal*/) {
    g_interrupted = 1;
}

}  // namespace

void watch_for_interrupts() {
    struct sigaction action {};
    action.sa_handler = note;
    action.sa_flags = static_cast<int>(SA_RESETHAND);  // a second Ctrl-C ends the program at once
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

void check_interrupt() {
    if (g_interrupted != 0) {
        throw interrupted();
    }
}

}  // namespace train
