// Numbers of layers that are worth a try as a hand-set count: all small ones, then coarser.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ebb::baselines {

// From 0 to `most`, at most about 16 of them, the ends among them.
[[nodiscard]] inline std::vector<uint32_t> counts_to_try(uint32_t most) {
    std::vector<uint32_t> counts;
    constexpr uint32_t k_fine = 4;
    for (uint32_t c = 0; c <= std::min(most, k_fine); ++c) {
        counts.push_back(c);
    }
    constexpr uint32_t k_parts = 12;
    for (uint32_t part = 1; part <= k_parts; ++part) {
        counts.push_back(most * part / k_parts);
    }
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    return counts;
}

}  // namespace ebb::baselines
