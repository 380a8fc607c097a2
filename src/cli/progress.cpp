#include "cli/progress.hpp"

#include <algorithm>

namespace ebb::cli {

void progress::show(const std::string &what) {
    if (!io_.err_is_terminal) {
        return;
    }
    const size_t longer = shown_ - std::min(shown_, what.size());
    io_.err << '\r' << what << std::string(longer, ' ') << std::flush;
    shown_ = what.size();
}

void progress::clear() {
    if (shown_ != 0) {
        io_.err << '\r' << std::string(shown_, ' ') << '\r' << std::flush;
        shown_ = 0;
    }
}

}  // namespace ebb::cli
