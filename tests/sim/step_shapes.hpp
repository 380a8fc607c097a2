// In which order a step runs the forward and backward passes of its micro-batches and stages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ebb::test {

struct pass {
    bool forward;
    uint64_t micro_batch;
    uint64_t stage;
};

inline std::vector<pass> accumulation(uint64_t micro_batches) {
    std::vector<pass> order;
    for (uint64_t m = 0; m < micro_batches; ++m) {
        order.push_back({true, m, 0});
        order.push_back({false, m, 0});
    }
    return order;
}

// One forward, one backward, on pipeline rank `rank` of `ranks`.
inline std::vector<pass> one_forward_one_backward(uint64_t micro_batches, uint64_t ranks, uint64_t rank) {
    const uint64_t warm_up = std::min(ranks - rank - 1, micro_batches);
    std::vector<pass> order;
    for (uint64_t m = 0; m < micro_batches + warm_up; ++m) {
        if (m < micro_batches) {
            order.push_back({true, m, 0});
        }
        if (m >= warm_up) {
            order.push_back({false, m - warm_up, 0});
        }
    }
    return order;
}

// The same with several stages per rank; micro_batches is a multiple of ranks.
inline std::vector<pass> interleaved(uint64_t micro_batches, uint64_t ranks, uint64_t rank, uint64_t stages) {
    const uint64_t passes = micro_batches * stages;
    const uint64_t warm_up = std::min((ranks - rank - 1) * 2 + (stages - 1) * ranks, passes);
    const auto nth = [&](bool forward, uint64_t n) {
        const uint64_t in_group = n % (ranks * stages);
        const uint64_t stage = in_group / ranks;
        return pass{forward, n / (ranks * stages) * ranks + in_group % ranks, forward ? stage : stages - 1 - stage};
    };
    std::vector<pass> order;
    for (uint64_t n = 0; n < passes + warm_up; ++n) {
        if (n < passes) {
            order.push_back(nth(true, n));
        }
        if (n >= warm_up) {
            order.push_back(nth(false, n - warm_up));
        }
    }
    return order;
}

}  // namespace ebb::test
