// Chooses for each tensor of a step whether it is kept, offloaded or recomputed, and in staging mode how large staging
// is, so that the step is as short as the evaluator says it can be made within the budgets. docs/planner.md.
//
// The same search at any size: families of starts, the best of them improved by moves, the evaluator as the referee,
// until the lower bound is met or the moves are used up. No clock and no random device: the same input gives the same
// plan.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "schedule/evaluator.hpp"
#include "schedule/plan.hpp"
#include "schedule/step_model.hpp"

namespace ebb {

struct planned {
    bool feasible = false;
    plan chosen;
    evaluation predicted;
    double bound_ns = 0;                   // no plan is faster
    uint64_t smallest_feasible_bytes = 0;  // not feasible: the device budget from which a plan was found
    // For comparison; not feasible where they do not fit.
    evaluation keep_all;
    evaluation recompute_all;   // all that can be; the rest is kept, or offloaded where it cannot be
    evaluation moving_nothing;  // the cheapest recomputes that make the rest fit
    uint32_t evaluations = 0;

    // How much longer than the bound, of the bound: 0.01 is 1 %.
    [[nodiscard]] double gap() const noexcept { return bound_ns > 0 ? (predicted.step_ns - bound_ns) / bound_ns : 0; }
};

// What a little more of something would save. From plans for a little more and a little less.
struct shadow_prices {
    double device_seconds_per_gib = 0;
    double d2h_seconds_per_gb_per_second = 0;
    double h2d_seconds_per_gb_per_second = 0;
};

struct planner_options {
    // More looks longer: a factor for the number of evaluations.
    double effort = 1;
};

class planner {
public:
    // The model must live as long. It must pass evaluator::check().
    explicit planner(const step_model &model, planner_options options = {});

    [[nodiscard]] planned make(const plan_budget &budget);
    [[nodiscard]] shadow_prices prices(const planned &made, const plan_budget &budget);

private:
    struct least_memory {
        uint64_t device_bytes = 0;
        plan what;
    };
    [[nodiscard]] least_memory find_least_memory(const plan_budget &budget);
    [[nodiscard]] double link_price(const plan &chosen, const plan_budget &budget, plan_link plan_budget::*link);

    const step_model &model_;
    planner_options options_;
    evaluator evaluator_;
};

}  // namespace ebb
