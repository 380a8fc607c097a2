#include "schedule/planner.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "schedule/bounds.hpp"
#include "schedule/plan_search.hpp"
#include "schedule/plan_starts.hpp"
#include "schedule/start_search.hpp"

namespace ebb {

namespace {

constexpr int k_kicks = 24;

// One planning: starts, then the best of them improved.
class planning {
public:
    planning(const step_model &model, evaluator &judge, const plan_budget &budget, double effort)
        : model_(model),
          judge_(judge),
          budget_(budget),
          starts_(model),
          bound_(model, budget),
          search_(model, judge, budget, starts_.classes()),
          family_(model, budget, bound_, starts_, search_) {
        const auto events = static_cast<double>(std::max<size_t>(model.events.size(), 1));
        allowed_ = effort * (300 + 1.5e6 / events);
    }

    // With a plan that is known to fit, if there is one.
    planned make(const plan *known = nullptr) {
        planned p;
        p.bound_ns = bound_.best_ns();
        search_.stop_at(p.bound_ns);
        search_.allow(allowed_);
        p.keep_all = judged(tensor_placement::keep);
        p.recompute_all = judged(tensor_placement::recompute);
        p.moving_nothing = p.keep_all.feasible ? p.keep_all : judged_moving_nothing();
        if (known != nullptr) {
            family_.offer(*known);
        }
        if (!search_.met()) {
            family_.run(allowed_ / 2);
            for (plan_search::candidate &c : family_.elites()) {
                search_.improve(c);
            }
            for (int i = 0; i < k_kicks && !search_.over() && std::isfinite(search_.best().step_ns); ++i) {
                search_.kick();
            }
        }
        p.feasible = std::isfinite(search_.best().step_ns);
        if (p.feasible) {
            p.chosen = search_.best().what;
            p.predicted = judge_.evaluate(p.chosen, budget_);
        }
        p.evaluations = static_cast<uint32_t>(search_.evaluations());
        return p;
    }

private:
    // All that may be placed so is; the rest is kept, or else offloaded.
    evaluation judged(tensor_placement wanted) {
        scratch_ = {};
        for (const step_tensor &t : model_.tensors) {
            const bool may = wanted == tensor_placement::keep ? t.can_keep : t.can_recompute;
            scratch_.placement.push_back(may             ? wanted
                                         : t.can_keep    ? tensor_placement::keep
                                         : t.can_offload ? tensor_placement::offload
                                                         : tensor_placement::recompute);
        }
        if (budget_.mode == memory_mode::staging) {
            scratch_.staging_bytes =
                budget_.fixed_staging_bytes != 0 ? budget_.fixed_staging_bytes : starts_.used_at_once_bytes(scratch_);
        }
        family_.offer(scratch_);
        return search_.said();
    }

    // As few recomputes, the cheapest per byte, as make the rest fit.
    evaluation judged_moving_nothing() {
        evaluation best;
        plan_start s;
        s.may_offload = false;
        s.staging_bytes = budget_.mode == memory_mode::staging ? budget_.fixed_staging_bytes : 0;
        s.kept_limit_bytes = ~uint64_t{0} / 2;
        for (s.order = 0; s.order < plan_starts::k_orders; ++s.order) {
            uint32_t low = 0;
            uint32_t high = starts_.recomputable() + 1;
            while (low < high && low <= starts_.recomputable()) {
                s.recomputed = (low + high) / 2;
                starts_.build(s, scratch_);
                family_.offer(scratch_);
                const evaluation &e = search_.said();
                if (e.feasible) {
                    best = !best.feasible || e.step_ns < best.step_ns ? e : best;
                    high = s.recomputed;
                } else {
                    low = s.recomputed + 1;
                }
            }
        }
        return best;
    }

    const step_model &model_;
    evaluator &judge_;
    const plan_budget &budget_;
    plan_starts starts_;
    step_bound bound_;
    plan_search search_;
    start_search family_;
    double allowed_ = 0;
    plan scratch_;
};

// The least number for which something holds that holds for all larger ones; beyond `high` if for none.
template <class Holds>
uint64_t least_where(uint64_t low, uint64_t high, const Holds &holds) {
    if (!holds(high)) {
        return ~uint64_t{0};
    }
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (holds(middle)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

}  // namespace

planner::planner(const step_model &model, planner_options options)
    : model_(model), options_(options), evaluator_(model) {}

planned planner::make(const plan_budget &budget) {
    planned p = planning(model_, evaluator_, budget, options_.effort).make();
    if (!p.feasible) {
        const least_memory least = find_least_memory(budget);
        if (least.device_bytes == budget.device_bytes) {
            p = planning(model_, evaluator_, budget, options_.effort).make(&least.what);
        } else {
            p.smallest_feasible_bytes = least.device_bytes;
        }
    }
    return p;
}

// ---------------------------------------------------------------------------------------- the smallest budget --

// Of the plans that hold least at once: everything offloaded, or recomputed where that can be. The least device memory
// from the budget on that one of them fits into; 0 if none ever does.
planner::least_memory planner::find_least_memory(const plan_budget &budget) {
    uint64_t most_bytes = model_.fixed_bytes;
    for (const step_tensor &t : model_.tensors) {
        most_bytes += 3 * t.size_bytes;
    }
    least_memory least;
    for (const bool recompute : {false, true}) {
        plan p;
        for (const step_tensor &t : model_.tensors) {
            const bool recomputed = t.can_recompute && (recompute || !t.can_offload);
            p.placement.push_back(recomputed      ? tensor_placement::recompute
                                  : t.can_offload ? tensor_placement::offload
                                                  : tensor_placement::keep);
        }
        plan_budget b = budget;
        const bool given = budget.fixed_staging_bytes != 0;
        const uint64_t least_staging_bytes = budget.mode != memory_mode::staging ? 0
                                             : given                             ? budget.fixed_staging_bytes
                                                     : plan_starts(model_).used_at_once_bytes(p);
        const auto fits = [&](uint64_t device_bytes) {
            b.device_bytes = device_bytes;
            p.staging_bytes = least_staging_bytes;
            const evaluation *e = &evaluator_.evaluate(p, b);
            while (!e->feasible && e->missing_in_staging && !given) {  // what recomputes read comes on top
                p.staging_bytes += e->missing_bytes;
                e = &evaluator_.evaluate(p, b);
            }
            return e->feasible;
        };
        const uint64_t needed_bytes = least_where(budget.device_bytes, 2 * most_bytes, fits);
        if (needed_bytes <= 2 * most_bytes && (least.device_bytes == 0 || needed_bytes < least.device_bytes)) {
            static_cast<void>(fits(needed_bytes));
            least = {needed_bytes, p};
        }
    }
    return least;
}

// ---------------------------------------------------------------------------------------------- shadow prices --

shadow_prices planner::prices(const planned &made, const plan_budget &budget) {
    shadow_prices found;
    if (!made.feasible) {
        return found;
    }
    uint64_t step_bytes = budget.device_bytes / 32;
    for (const step_tensor &t : model_.tensors) {
        step_bytes = std::max(step_bytes, t.size_bytes);
    }
    const auto step_ns_with = [&](uint64_t device_bytes) {
        plan_budget b = budget;
        b.device_bytes = device_bytes;
        const planned p = planning(model_, evaluator_, b, options_.effort).make();
        return p.feasible ? p.predicted.step_ns : INFINITY;
    };
    const double now_ns = made.predicted.step_ns;
    const double more_ns = std::min(now_ns, step_ns_with(budget.device_bytes + step_bytes));
    const double less_ns =
        budget.device_bytes > step_bytes ? std::max(now_ns, step_ns_with(budget.device_bytes - step_bytes)) : INFINITY;
    const double gib = static_cast<double>(step_bytes) / static_cast<double>(uint64_t{1} << 30U);
    found.device_seconds_per_gib =
        std::isfinite(less_ns) ? (less_ns - more_ns) * 1e-9 / (2 * gib) : (now_ns - more_ns) * 1e-9 / gib;
    found.d2h_seconds_per_gb_per_second = link_price(made.chosen, budget, &plan_budget::d2h);
    found.h2d_seconds_per_gb_per_second = link_price(made.chosen, budget, &plan_budget::h2d);
    return found;
}

// The plan stays: near its best a plan is worth the same to first order.
double planner::link_price(const plan &chosen, const plan_budget &budget, plan_link plan_budget::*link) {
    constexpr double k_part = 0.02;
    plan_budget b = budget;
    const double rate = (budget.*link).bytes_per_second;
    (b.*link).bytes_per_second = rate * (1 + k_part);
    const double faster_ns = evaluator_.evaluate(chosen, b).step_ns;
    (b.*link).bytes_per_second = rate * (1 - k_part);
    const double slower_ns = evaluator_.evaluate(chosen, b).step_ns;
    return (slower_ns - faster_ns) * 1e-9 / (2 * k_part * rate * 1e-9);
}

}  // namespace ebb
