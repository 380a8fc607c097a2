// One training step as the planner sees it: the work of one device's compute stream in its order, and the tensors
// that backward needs again. Built from a recorded step with measured times, or from a model's dimensions and a
// machine's rates; gradient accumulation, 1F1B and interleaved stages are longer sequences, nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/step_trace.hpp"

namespace ebb {

enum class step_event_kind : uint8_t {
    work,              // the compute stream is busy
    collective_begin,  // enqueued behind what compute has done so far; runs beside compute
    collective_end,    // compute waits for the latest collective that was begun
    hold_begin,        // a collective that has the links to itself (ebb_collective_begin): copies are held
    hold_end,          // they are issued, to start when its time is over; compute does not wait
    produce,           // the tensor has just been computed: the call that offloads it
    use,               // backward needs the tensor from here on: the call that reloads it
    done,              // until here; it may be used again later
    release,           // it is not needed any more (done included)
};

struct step_event {
    step_event_kind what = step_event_kind::work;
    uint32_t tensor = k_no_index;  // produce, use, done, release
    double time_ns = 0;            // work, collective_begin, hold_begin: alone on the machine
    double hbm_fraction = 0;       // work: of HBM's rate while it runs alone
    uint32_t operation = 0;        // index into operation_names
};

struct step_tensor {
    std::string name;
    uint64_t size_bytes = 0;
    uint64_t micro_batch = 0;
    uint64_t stage = 0;
    uint32_t layer = 0;
    bool can_keep = true;
    bool can_offload = true;
    bool can_recompute = false;
    double recompute_ns = 0;               // of its own operation, once its inputs are there
    std::vector<uint32_t> recompute_from;  // tensors that must be there for it: kept, reloaded, or recomputed before
    // Event before which it is computed again, if it is: where its layer's backward begins. None: at its first use.
    uint32_t recompute_at = k_no_index;
};

struct step_model {
    std::vector<std::string> operation_names{"work"};
    std::vector<step_tensor> tensors;  // in the order in which they are produced
    std::vector<step_event> events;
    uint64_t fixed_bytes = 0;  // device memory that is always held: parameters, optimizer state, buffers
};

}  // namespace ebb
