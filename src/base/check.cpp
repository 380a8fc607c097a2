#include "base/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace ebb {

void check_failed(const char *expression, const char *file, int line) noexcept {
    std::fprintf(stderr, "ebb: broken invariant: %s (%s:%d). Please report this line.\n", expression, file, line);
    std::abort();
}

}  // namespace ebb
