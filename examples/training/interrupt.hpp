// Ctrl-C: noted by the signal handler, acted upon by the training loop between two layers.
#pragma once

#include <stdexcept>

namespace train {

class interrupted : public std::runtime_error {
public:
    interrupted() : std::runtime_error("interrupted") {}
};

void watch_for_interrupts();
// Throws interrupted when there was one.
void check_interrupt();

}  // namespace train
