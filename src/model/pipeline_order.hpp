// In which order a device of a pipeline runs its parts of the model, and where it waits for the others: plain gradient
// accumulation (one stage), 1F1B, and interleaved 1F1B, where each device has several parts ("chunks").
#pragma once

#include <cstdint>
#include <vector>

namespace ebb {

struct pipeline_shape {
    uint64_t stages = 1;
    uint64_t chunks = 1;
    uint64_t micro_batches = 1;  // a multiple of stages where there are several chunks
};

struct pipeline_pass {
    bool backward = false;
    uint32_t chunk = 0;
    uint64_t micro_batch = 0;
    double wait_ns = 0;  // for other stages, before it
};

// Of each part of the model, in model order: part c * stages + s is chunk c of stage s.
struct pipeline_time {
    double forward_ns = 0;
    double backward_ns = 0;
};

[[nodiscard]] std::vector<pipeline_pass> pipeline_order(const pipeline_shape &shape, uint64_t stage);

// With its waits, where each pass takes so long. Sending is taken to cost nothing.
[[nodiscard]] std::vector<pipeline_pass> pipeline_schedule(const pipeline_shape &shape, uint64_t stage,
                                                           const std::vector<pipeline_time> &times);

}  // namespace ebb
