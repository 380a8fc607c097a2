// How long a step takes under a plan, exactly as the runtime would run it on a machine whose host runs ahead: the
// same rules for giving sources up, prefetching and waiting (docs/planner.md, docs/architecture.md), one compute
// stream and one FIFO lane per direction. O(events), no allocation once warm.
//
// The rules, for the events in their order. C, D, H are the times at which compute, the D2H lane and the H2D lane are free.
//   work         C += its time.
//   collective   begins at max(C, end of the one before). collective_end: C waits for it.
//   produce t    keep: held until release. recompute: its memory is free again. offload: a source; its copy ends at
//                D = max(D, C) + transfer(t).
//   use t        a source that was not given up is forwarded: it stays until release, and is not copied in.
//                Offloaded: C = max(C, end of its H2D copy).
//   recompute    at recompute_at (or the first use): what it is computed from is used (reloads in the order of these uses too),
//                C += recompute_ns, and it is held until release. Tensors recomputed at one place are in the order of
//                their production.
//   done         the slot is free; a later use reloads it again. release: done, and what was kept is free.
// After each of these calls (all events but work and collectives):
//   room         if the next call is a produce, its bytes must fit: sources are given up, oldest first, C waiting for each
//                one's copy, until  held + next <= budget.
//   prefetch     the expected reloads in the order of their uses, none overtaking. One is issued here if its source
//                was given up and  slots + sources + a + max of f from here to its use <= budget,  f being what kept and recomputed
//                tensors hold then (with a produce's bytes in the making). In staging mode instead: if the slot fits
//                into staging. Its copy begins at the latest of H, its own D2H, and the time at which its memory was
//                free: one pool, C now; staging, the release of the bytes freed first.
//   A use that finds its tensor not prefetched issues it there, giving up sources first where that is needed.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "schedule/plan.hpp"
#include "schedule/step_model.hpp"

namespace ebb {

struct evaluation {
    bool feasible = false;
    double step_ns = 0;
    double compute_ns = 0;            // work, without recompute
    double recompute_ns = 0;
    double exposed_d2h_ns = 0;        // compute waited for room
    double exposed_h2d_ns = 0;        // compute waited for reloads
    double exposed_collective_ns = 0;
    uint64_t device_peak_bytes = 0;   // fixed bytes and the whole of staging included
    uint64_t host_peak_bytes = 0;
    uint64_t offloaded_bytes = 0;     // copied out
    uint64_t reloaded_bytes = 0;
    uint64_t missing_bytes = 0;       // not feasible: how much the budget falls short where it first does
    uint32_t missing_at = k_no_index; // event
};

// Where the calls of the runtime act, for what follows a plan: by tensor.
struct plan_order {
    std::vector<uint32_t> given_up_at;   // event after which its source is given up; none: forwarded or not offloaded
    std::vector<uint32_t> prefetch_at;   // event after which its (first) reload is issued; none: on demand
};

class evaluator {
public:
    // What follows from the model alone is worked out once. The model must live as long.
    explicit evaluator(const step_model &model);

    // Whether the model is one: indices, order of the events of a tensor, recompute inputs. Names what is wrong.
    [[nodiscard]] static status check(const step_model &model);

    const evaluation &evaluate(const plan &p, const plan_budget &budget);
    // The same, with the order of give-ups and prefetches.
    const evaluation &evaluate(const plan &p, const plan_budget &budget, plan_order &order);

private:
    const step_model &model_;
    evaluation result_;
};

}  // namespace ebb
