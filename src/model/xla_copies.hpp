// How long a step takes under XLA's ways of moving tensors to the host and back, operator by operator. One copy engine
// per direction. This is the copies' rule alone: no memory is counted, no engine is shared.
#pragma once

#include <cstdint>

#include "model/step_builder.hpp"
#include "schedule/plan.hpp"

namespace ebb {

enum class xla_copy_mode : uint8_t {
    synchronous,    // LHS off: compute waits for each copy where it is made
    own_iteration,  // LHS on: a copy overlaps with its own loop iteration and is done at that iteration's end; reloads
                    // start with the iteration, in the order of first use
    pipelined,      // LHS on and pipelined: exactly one iteration in flight, out behind and back ahead
};

struct xla_step {
    double step_ns = 0;
    double compute_ns = 0;    // work
    double recompute_ns = 0;  // on top of it
    double exposed_d2h_ns = 0;
    double exposed_h2d_ns = 0;
    double exposed_collective_ns = 0;
    // Device memory for copies, beyond what synchronous copies need: two buffers of what the largest iteration moves,
    // one in use and one in flight. 0 unless pipelined.
    uint64_t copy_buffer_bytes = 0;
};

[[nodiscard]] xla_step run_xla(const built_step &step, const plan &placed, xla_copy_mode mode, const plan_link &d2h,
                               const plan_link &h2d);

}  // namespace ebb
