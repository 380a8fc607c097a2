// What the runtime counts: for all activations, and per name. Plain numbers; src/capi copies them out.
#pragma once

#include <cstdint>

namespace ebb {

// The plan that is followed, and what came of it.
struct plan_counters {
    uint64_t made = 0;          // for the record that is followed
    uint64_t predicted_ns = 0;  // of a step, from its first call to its last
    uint64_t bound_ns = 0;      // no plan is faster
    uint64_t keep_ns = 0;       // keeping everything; 0: it does not fit
    uint64_t recompute_ns = 0;  // computing again all that can be; 0: it does not fit
    uint64_t predicted_exposed_ns = 0;
    uint64_t exposed_ns = 0;  // in the last step that was compared with it
    uint64_t compared = 0;    // steps
};

struct counters {
    uint64_t steps = 0, sampled_steps = 0;
    uint64_t offload_calls = 0;
    uint64_t kept_count = 0, offloaded_count = 0, recompute_count = 0;
    uint64_t forwarded_count = 0;
    uint64_t reloads_prefetched = 0, reloads_on_demand = 0;
    uint64_t prefetches_dropped = 0;
    uint64_t no_slot_count = 0;
    uint64_t d2h_bytes = 0, h2d_bytes = 0;
    uint64_t given_up_bytes = 0;
    uint64_t hidden_ns = 0, exposed_ns = 0;
    uint64_t device_held_bytes = 0, device_peak_bytes = 0;
    uint64_t kept_bytes = 0, source_bytes = 0, source_peak_bytes = 0;
    uint64_t staging_bytes = 0, staging_used_bytes = 0, staging_peak_bytes = 0;
    uint64_t pinned_bytes = 0, pinned_used_bytes = 0, pinned_peak_bytes = 0;
    uint64_t pinned_peak_waste_bytes = 0;  // registered and not requested, at the peak of what was registered
    uint64_t device_budget_bytes = 0;
    uint64_t over_budget_policy_bytes = 0, over_budget_failure_bytes = 0, over_budget_size_bytes = 0,
             over_budget_caller_bytes = 0;
    uint64_t order_mismatches = 0;
    uint64_t device_allocations = 0;
    uint64_t graphs = 0, graph_pinned_bytes = 0, graph_staging_bytes = 0;
    plan_counters plan;
};

struct alignas(64) name_counters {
    // In one cache line: what is counted of those that move.
    uint64_t calls = 0;
    uint64_t offloaded = 0;
    uint64_t saved_bytes = 0;      // sizes of all calls
    uint64_t offloaded_bytes = 0;  // copied to host memory
    uint64_t given_up_bytes = 0;   // really given up after a copy
    uint64_t reloaded_bytes = 0;   // copied back
    uint64_t prefetched = 0;
    uint64_t forwarded = 0;
    uint64_t kept = 0, recompute = 0, shared = 0, on_demand = 0;
    uint64_t kept_by_reason[13] = {};
    uint64_t transfer_ns = 0, exposed_ns = 0;  // in sampled steps
};

}  // namespace ebb
