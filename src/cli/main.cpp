#include <unistd.h>

#include <iostream>
#include <string>

#include "cli/commands.hpp"
#include "cli/interrupt.hpp"

int main(int argc, char **argv) {
    ebb::cli::end_at_interrupts();
    ebb::cli::terminal io{std::cout, std::cerr, isatty(STDERR_FILENO) == 1};
    return ebb::cli::run_ebb(ebb::cli::arguments(argv + 1, argv + argc), io);
}
