// Assertions of cheap invariants. They stay on in release: a broken invariant in a memory mover is a wrong
// gradient, and stopping is better than that.
#pragma once

namespace ebb {

[[noreturn]] void check_failed(const char *expression, const char *file, int line) noexcept;

}  // namespace ebb

#define EBB_CHECK(expression) \
    ((expression) ? static_cast<void>(0) : ::ebb::check_failed(#expression, __FILE__, __LINE__))
