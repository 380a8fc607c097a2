// Ranges for a profiler (Nsight Systems) through NVTX, in a domain of their own, "ebb".
#pragma once

#include <cstdint>

namespace ebb {

class cuda_ranges {
public:
    explicit cuda_ranges(bool enabled) noexcept : enabled_(enabled) {}

    // The calling thread does `what` of the activation `name` from here on; the bytes are the range's payload.
    void begin(const char *what, const char *name, uint64_t size_bytes) const noexcept {
        if (enabled_) {
            push(what, name, size_bytes);
        }
    }
    void end() const noexcept {
        if (enabled_) {
            pop();
        }
    }

private:
    static void push(const char *what, const char *name, uint64_t size_bytes) noexcept;
    static void pop() noexcept;

    const bool enabled_;
};

}  // namespace ebb
