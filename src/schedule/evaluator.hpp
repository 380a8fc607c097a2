// How long a step takes under a plan, exactly as the runtime would run it on a machine whose host runs ahead: the
// same rules for giving sources up, prefetching and waiting (docs/planner.md, docs/architecture.md), one compute
// stream and one FIFO lane per direction. O(events), no allocation once warm.
//
// The rules, for the events in their order. C, D, H are the times at which compute, the D2H lane and the H2D lane are
// free.
//   work         C += its time.
//   collective   begins at max(C, end of the one before), and loses a part of its rate while copies out run beside it.
//                collective_end: C waits for it.
//   hold         such a collective, which has the links to itself: copies out and prefetches asked for between its
//   begin
//                and its end are issued at its end, not to start before its time is over; C does not wait. A copy that
//                must be waited for meanwhile is issued at once, after those asked for before it.
//   produce t    keep: held until release. recompute: its memory is free again. offload: a source; its copy ends at
//                D = max(D, C) + transfer(t).
//   use t        a source that was not given up is forwarded: it stays until release, and is not copied in.
//                Offloaded: C = max(C, end of its H2D copy).
//   recompute    at recompute_at (or the first use; or before, when one that is computed from it is): room is made for
//                it as for a produce, what it is computed from is used (reloads in the order of these uses too),
//                C += recompute_ns, and it is held until release. Tensors recomputed at one place are in the order of
//                their production.
//   done         the slot is free, unless the prefetch has already passed a later use of it; a use after that reloads
//   it
//                again. release: done, and what was kept is free. The copy of a source that is released before it was
//                given up, forwarded or not, is waited for: its memory may be reused behind it.
// After each of these calls (all events but work and collectives):
//   room         if the next of these calls is a produce, its bytes must fit: sources are given up, oldest first, C
//                waiting for each one's copy, until  held + next <= budget.
//   prefetch     the expected reloads in the order of their uses, none overtaking. Passed over are sources that will be
//                forwarded (by a forecast of the room rule that knows no slots). One is issued here if its source
//                was given up and  slots + sources + forwarded + a + max of f from here to its use <= budget,  f being
//                what kept and recomputed tensors hold then (with a produce's bytes in the making). In staging mode
//                instead: if the slot fits into staging. Its copy begins at the latest of H, its own D2H, and the time
//                at which its memory was free: one pool, C now; staging, the release of the bytes freed first.
//   A part of each transfer's time, move_cost of the budget, is added to the step at its end.
//   A use that finds its tensor not prefetched issues it there, giving up sources first where that is needed, then
//   dropping prefetches that nobody has claimed, those needed last first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "schedule/plan.hpp"
#include "schedule/sliding_maximum.hpp"
#include "schedule/slot_replay.hpp"
#include "schedule/step_model.hpp"

namespace ebb {

struct evaluation {
    bool feasible = false;  // else only what is missing says anything
    double step_ns = 0;
    double compute_ns = 0;  // work, without recompute
    double recompute_ns = 0;
    double exposed_d2h_ns = 0;  // compute waited for room
    double exposed_h2d_ns = 0;  // compute waited for reloads
    double exposed_collective_ns = 0;
    uint64_t device_peak_bytes = 0;  // fixed bytes and the whole of staging included
    uint64_t host_peak_bytes = 0;
    uint64_t offloaded_bytes = 0;  // copied out
    uint64_t reloaded_bytes = 0;
    uint64_t missing_bytes = 0;        // not feasible: how much the budget falls short where it first does
    uint32_t missing_at = k_no_index;  // event
    bool missing_on_host = false;      // it is the host budget that falls short
    bool missing_in_staging = false;   // it is the plan's staging that is too small
};

// Where the calls of the runtime act, for what follows a plan: by tensor.
struct plan_order {
    std::vector<uint32_t> given_up_at;  // event after which its source is given up; none: forwarded or not offloaded
    std::vector<uint32_t> prefetch_at;  // event after which its (first) reload is issued; none: on demand
};

class evaluator {
public:
    // What follows from the model alone is worked out once. The model must live as long.
    explicit evaluator(const step_model &model);

    // Whether the model is one: indices, order of the events of a tensor, recompute inputs. Names what is wrong.
    [[nodiscard]] static status check(const step_model &model);

    const evaluation &evaluate(const plan &p, const plan_budget &budget);
    // For a search: nothing if the plan is not feasible or takes that long or longer, found out as early as it can be.
    const evaluation *evaluate_below(const plan &p, const plan_budget &budget, double step_ns);
    // What the last one found, to its end or to where it was stopped.
    [[nodiscard]] const evaluation &last() const noexcept { return result_; }
    // How far it had to go for the last one: 1 to the end of the step.
    [[nodiscard]] double share_run() const noexcept { return share_run_; }
    // The same, with the order of give-ups and prefetches.
    const evaluation &evaluate(const plan &p, const plan_budget &budget, plan_order &order);

private:
    // An event that is more than work, with the work before it; or a place for recomputes in front of work.
    enum class op_kind : uint8_t {
        produce,
        use,
        done,
        release,
        collective_begin,
        collective_end,
        hold_begin,
        hold_end,
        pause
    };
    struct op {
        double work_ns = 0;
        uint64_t next_bytes = 0;  // of the next produce, if no use comes before it
        uint32_t tensor = k_no_index;
        op_kind what = op_kind::pause;
    };
    enum class tensor_state : uint8_t { absent, held, source, forwarded, offloaded, resident };
    // Of an offloaded tensor. What is not reset by its produce is set by list_uses() or the forecast.
    struct state {
        double d2h_end_ns = 0;
        double h2d_end_ns = 0;
        uint32_t first_use = k_no_index;  // index into uses_
        uint32_t expected = 0;            // later uses that the prefetch has passed since the slot is there
        uint32_t claims = 0;
        bool will_be_given_up = false;
        bool held = false;  // its copy out is not issued yet
    };
    // A read of an offloaded tensor: its own use, or as an input of a recompute.
    struct expected_use {
        uint32_t op = 0;
        uint32_t tensor = 0;
        bool passed = false;
    };
    struct freed_bytes {
        uint64_t size_bytes = 0;
        double at_ns = 0;
    };

    void run(const plan &p, const plan_budget &budget);
    void derive_ops();
    [[nodiscard]] std::span<const uint32_t> inputs_of(uint32_t tensor) const {
        return {inputs_.data() + input_start_[tensor], input_start_[tensor + 1] - input_start_[tensor]};
    }
    void prepare(const plan &p, const plan_budget &budget);
    void place_recomputes();
    void list_uses();
    void sum_fixed_part();
    void forecast();
    void forecast_call(const op &o);
    void forecast_recomputes(uint32_t at);
    void forecast_leave(uint32_t tensor);
    void forecast_give_ups(uint64_t next_bytes);

    [[nodiscard]] bool run_op(uint32_t at);
    [[nodiscard]] bool run_call(uint32_t at);
    [[nodiscard]] bool produce(const op &o);
    [[nodiscard]] bool use(uint32_t tensor);
    void end_claim(uint32_t tensor);
    void release(uint32_t tensor);
    [[nodiscard]] bool recompute_here(uint32_t at);
    void begin_collective();
    void copy_out(uint32_t tensor, double ready_ns);
    void end_hold(uint32_t at, uint64_t next_bytes);
    void issue_held_to(uint32_t tensor);
    void cancel_held(uint32_t tensor);
    void settle(uint32_t now, uint64_t next_bytes);
    void make_room(uint64_t next_bytes);
    [[nodiscard]] bool make_room_or_drop(uint64_t next_bytes);
    void give_up(uint32_t tensor);
    void prefetch(uint32_t now);
    [[nodiscard]] bool slot_fits(uint32_t now, const expected_use &u);
    [[nodiscard]] uint64_t reserve_bytes(uint32_t now, uint32_t until);
    [[nodiscard]] bool take_slot(uint32_t tensor);
    void copy_in(uint32_t tensor);
    [[nodiscard]] bool copy_in_now(uint32_t tensor);
    void free_slot(uint32_t tensor);
    [[nodiscard]] bool drop_last_unclaimed();
    void look_again_from(uint32_t use_index);
    [[nodiscard]] bool fail(uint64_t missing_bytes);
    void wait(double until_ns, double &exposed_ns);
    void hold(uint64_t size_bytes);

    const step_model &model_;
    // Of the model.
    std::vector<op> ops_;
    std::vector<uint32_t> op_events_;             // by op
    std::vector<double> collective_ns_;           // in the order of their begin
    std::vector<double> recompute_ns_;            // by tensor
    std::vector<uint32_t> input_start_, inputs_;  // by tensor: what it is computed from
    std::vector<uint64_t> size_bytes_;            // by tensor
    std::vector<uint32_t> recomputed_at_;         // op; none: never needed by itself
    std::vector<uint32_t> use_ops_;               // uses, and places of recomputes
    double compute_ns_ = 0;
    uint32_t last_produce_ = 0;  // op
    // Of the plan and the budget; only the values change.
    const plan *plan_ = nullptr;
    const tensor_placement *where_ = nullptr;  // of the plan, by tensor
    plan_order *order_ = nullptr;
    plan_link d2h_, h2d_;
    std::vector<double> d2h_ns_, h2d_ns_;                     // by tensor
    std::vector<uint32_t> place_;                             // by tensor: op of its recompute
    std::vector<uint32_t> recompute_first_, recompute_next_;  // by op, by tensor: those of one place
    std::vector<uint64_t> fixed_part_;                        // by op: kept and recomputed, with what is in the making
    std::vector<expected_use> uses_;
    bool any_recompute_ = false;
    bool one_pool_ = true;
    bool exact_slots_ = false;
    uint64_t pool_bytes_ = 0;  // for everything, or for all but staging
    uint64_t host_limit_bytes_ = 0;
    double planned_recompute_ns_ = 0;
    double share_run_ = 0;
    // Of the run.
    std::vector<state> states_;
    std::vector<tensor_state> what_;  // by tensor
    std::vector<uint32_t> pending_;   // sources, oldest first; those that left are skipped
    std::vector<freed_bytes> freed_;
    slot_replay slots_;
    std::vector<slot_replay::slot> slot_of_;  // by tensor, with exact slots
    sliding_maximum reserve_;                 // of fixed_part_ between now and the prefetch's use
    size_t pending_head_ = 0, freed_head_ = 0;
    uint32_t window_ = 0, next_use_ = 0;  // indices into uses_
    uint32_t at_ = 0;
    uint32_t collective_ = 0;
    struct held_copy {
        uint32_t tensor = 0;
        double ready_ns = 0;
    };
    std::vector<held_copy> held_copies_;
    size_t held_head_ = 0;
    uint32_t holds_ = 0;  // begun and not ended
    bool prefetch_held_ = false;
    bool blocked_ = false;  // the next prefetch found no room, and none was freed since
    bool forecast_done_ = false;
    std::vector<uint32_t> forecast_pending_;
    std::vector<uint8_t> forecast_left_;  // by tensor: no pending source any more
    size_t forecast_head_ = 0;
    uint32_t forecast_sources_ = 0;
    uint64_t forecast_held_bytes_ = 0;
    double exposed_ns_ = 0, allowed_ns_ = 0;
    double compute_at_ns_ = 0, d2h_at_ns_ = 0, h2d_at_ns_ = 0, collective_at_ns_ = 0;
    double collective_began_ns_ = 0, collective_loss_ = 0;
    double moved_ns_ = 0;        // of all transfers
    uint64_t held_bytes_ = 0;    // of the pool
    uint64_t moving_bytes_ = 0;  // of these: sources, forwarded ones and slots
    uint64_t staged_bytes_ = 0;
    uint64_t host_bytes_ = 0, host_peak_bytes_ = 0, peak_bytes_ = 0;
    evaluation result_;
};

}  // namespace ebb
