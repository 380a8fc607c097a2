#include "schedule/planner.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "schedule/bounds.hpp"
#include "schedule/plan_search.hpp"
#include "schedule/plan_starts.hpp"

namespace ebb {

namespace {

constexpr uint32_t k_most_elites = 24;
constexpr uint32_t k_coarse_counts = 64;
constexpr int k_repairs = 4;

// One planning: starts, then the best of them improved.
class planning {
public:
    planning(const step_model &model, evaluator &judge, const plan_budget &budget, double effort)
        : model_(model),
          judge_(judge),
          budget_(budget),
          starts_(model),
          bound_(model, budget),
          search_(model, judge, budget, starts_.classes()) {
        const auto events = static_cast<double>(std::max<size_t>(model.events.size(), 1));
        allowed_ = static_cast<uint64_t>(effort * (400 + 1.5e6 / events));
        pool_bytes_ = budget.device_bytes - std::min(budget.device_bytes, model.fixed_bytes);
    }

    planned make();

private:
    struct scored_start {
        double bound_ns = 0;
        plan_start what;
    };

    void offer_plain(planned &p);
    [[nodiscard]] evaluation judged(tensor_placement wanted);
    [[nodiscard]] evaluation judged_moving_nothing();
    [[nodiscard]] std::vector<uint64_t> staging_sizes() const;
    [[nodiscard]] std::vector<uint32_t> recompute_counts() const;
    void list_starts();
    double try_start(plan_start s);
    void try_starts();
    void refine_best_start();
    void remember(double step_ns, const plan &p);
    void improve_elites();

    const step_model &model_;
    evaluator &judge_;
    const plan_budget &budget_;
    plan_starts starts_;
    step_bound bound_;
    plan_search search_;
    uint64_t allowed_ = 0;
    uint64_t pool_bytes_ = 0;
    std::vector<scored_start> list_;
    std::vector<plan_search::candidate> elites_;
    plan_start best_start_;
    double best_start_ns_ = INFINITY;
    plan scratch_;
};

planned planning::make() {
    planned p;
    p.bound_ns = bound_.best_ns();
    search_.stop_at(p.bound_ns);
    search_.allow(allowed_);
    offer_plain(p);
    if (!search_.met()) {
        list_starts();
        try_starts();
        refine_best_start();
        improve_elites();
    }
    p.feasible = std::isfinite(search_.best().step_ns);
    if (p.feasible) {
        p.chosen = search_.best().what;
        p.predicted = judge_.evaluate(p.chosen, budget_);
    }
    p.evaluations = static_cast<uint32_t>(search_.evaluations());
    return p;
}

// All that may be placed so is; the rest is kept, or else offloaded.
evaluation planning::judged(tensor_placement wanted) {
    scratch_.staging_bytes = budget_.fixed_staging_bytes;
    scratch_.placement.clear();
    for (const step_tensor &t : model_.tensors) {
        const bool may = wanted == tensor_placement::keep ? t.can_keep : t.can_recompute;
        scratch_.placement.push_back(may             ? wanted
                                     : t.can_keep    ? tensor_placement::keep
                                     : t.can_offload ? tensor_placement::offload
                                                     : tensor_placement::recompute);
    }
    remember(search_.offer(scratch_), scratch_);
    return judge_.evaluate(scratch_, budget_);
}

// As few recomputes, the cheapest per byte, as make the rest fit.
evaluation planning::judged_moving_nothing() {
    evaluation best;
    for (uint32_t order = 0; order < plan_starts::k_orders; ++order) {
        uint32_t low = 0;
        uint32_t high = starts_.recomputable() + 1;
        while (low < high) {
            const uint32_t count = (low + high) / 2;
            if (count > starts_.recomputable()) {
                break;
            }
            plan_start s;
            s.recomputed = count;
            s.order = order;
            s.may_offload = false;
            s.kept_limit_bytes = ~uint64_t{0} / 2;
            s.staging_bytes = budget_.fixed_staging_bytes;
            starts_.build(s, scratch_);
            const double step_ns = search_.offer(scratch_);
            if (std::isfinite(step_ns)) {
                high = count;
                if (!best.feasible || step_ns < best.step_ns) {
                    best = judge_.evaluate(scratch_, budget_);
                    remember(step_ns, scratch_);
                }
            } else {
                low = count + 1;
            }
        }
    }
    return best;
}

void planning::offer_plain(planned &p) {
    p.keep_all = judged(tensor_placement::keep);
    p.recompute_all = judged(tensor_placement::recompute);
    p.moving_nothing = p.keep_all.feasible ? p.keep_all : judged_moving_nothing();
}

// ----------------------------------------------------------------------------------------------------- starts --

std::vector<uint64_t> planning::staging_sizes() const {
    if (budget_.mode == memory_mode::one_pool || budget_.fixed_staging_bytes != 0) {
        return {budget_.mode == memory_mode::one_pool ? 0 : budget_.fixed_staging_bytes};
    }
    std::vector<uint64_t> sizes;
    for (const uint64_t slots : {1, 2, 3, 4}) {
        sizes.push_back(slots * starts_.largest_bytes());
    }
    for (const double part : {0.1, 0.2, 0.3, 0.45, 0.6}) {
        sizes.push_back(static_cast<uint64_t>(part * static_cast<double>(pool_bytes_)));
    }
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    sizes.erase(std::remove_if(sizes.begin(), sizes.end(), [this](uint64_t s) { return s > pool_bytes_; }),
                sizes.end());
    return sizes;
}

std::vector<uint32_t> planning::recompute_counts() const {
    const uint32_t all = starts_.recomputable();
    const uint32_t steps = std::min(all, k_coarse_counts);
    std::vector<uint32_t> counts;
    for (uint32_t i = 0; i <= steps; ++i) {
        counts.push_back(steps == 0 ? 0 : static_cast<uint32_t>(uint64_t{all} * i / steps));
    }
    return counts;
}

void planning::list_starts() {
    const std::vector<uint64_t> staging = staging_sizes();
    for (const uint32_t count : recompute_counts()) {
        const double bound_ns = bound_.at_recomputed_ns(static_cast<double>(starts_.recomputed_bytes(count)));
        for (const uint64_t staging_bytes : staging) {
            for (uint32_t order = 0; order < plan_starts::k_orders; ++order) {
                for (uint64_t spare = 0; spare < 3; ++spare) {
                    for (const bool kept_first : {true, false}) {
                        plan_start s;
                        s.recomputed = count;
                        s.order = order;
                        s.kept_first = kept_first;
                        s.staging_bytes = staging_bytes;
                        const uint64_t not_kept = staging_bytes + spare * starts_.largest_bytes();
                        s.kept_limit_bytes = pool_bytes_ - std::min(pool_bytes_, not_kept);
                        list_.push_back({bound_ns, s});
                    }
                }
            }
        }
    }
    std::stable_sort(list_.begin(), list_.end(),
                     [](const scored_start &a, const scored_start &b) { return a.bound_ns < b.bound_ns; });
}

// What does not fit keeps less.
double planning::try_start(plan_start s) {
    for (int i = 0; i < k_repairs; ++i) {
        starts_.build(s, scratch_);
        const double step_ns = search_.offer(scratch_);
        if (std::isfinite(step_ns)) {
            remember(step_ns, scratch_);
            if (step_ns < best_start_ns_) {
                best_start_ns_ = step_ns;
                best_start_ = s;
            }
            return step_ns;
        }
        const uint64_t missing_bytes = search_.missing_bytes();
        if (missing_bytes == 0 || s.kept_limit_bytes == 0) {
            break;
        }
        s.kept_limit_bytes -= std::min(s.kept_limit_bytes, missing_bytes);
    }
    return INFINITY;
}

void planning::try_starts() {
    const uint64_t last = search_.evaluations() + allowed_ / 3;
    for (const scored_start &s : list_) {
        if (search_.over() || search_.evaluations() >= last || s.bound_ns >= search_.best().step_ns) {
            return;
        }
        try_start(s.what);
    }
}

// Between the coarse counts and limits.
void planning::refine_best_start() {
    if (!std::isfinite(best_start_ns_)) {
        return;
    }
    const uint32_t coarse = std::max(1U, starts_.recomputable() / k_coarse_counts);
    for (uint32_t step = coarse; step > 0 && !search_.over(); step /= 2) {
        const plan_start from = best_start_;
        for (const int direction : {-1, 1}) {
            plan_start s = from;
            if (direction < 0 ? s.recomputed < step : s.recomputed + step > starts_.recomputable()) {
                continue;
            }
            s.recomputed = direction < 0 ? s.recomputed - step : s.recomputed + step;
            try_start(s);
        }
    }
    for (uint64_t step = starts_.largest_bytes(); step > starts_.largest_bytes() / 8 && !search_.over(); step /= 2) {
        const plan_start from = best_start_;
        plan_start s = from;
        s.kept_limit_bytes += step;
        try_start(s);
        s.kept_limit_bytes = from.kept_limit_bytes - std::min(from.kept_limit_bytes, step);
        try_start(s);
    }
}

void planning::remember(double step_ns, const plan &p) {
    if (!std::isfinite(step_ns)) {
        return;
    }
    const auto at = std::lower_bound(elites_.begin(), elites_.end(), step_ns,
                                     [](const plan_search::candidate &c, double ns) { return c.step_ns < ns; });
    if (elites_.size() >= k_most_elites && at == elites_.end()) {
        return;
    }
    if (at != elites_.end() && at->step_ns == step_ns && at->what.placement == p.placement) {
        return;
    }
    plan_search::candidate c;
    c.step_ns = step_ns;
    c.what = p;
    elites_.insert(at, std::move(c));
    if (elites_.size() > k_most_elites) {
        elites_.pop_back();
    }
}

void planning::improve_elites() {
    for (plan_search::candidate &c : elites_) {
        if (search_.over()) {
            return;
        }
        search_.improve(c);
    }
}

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
        p.smallest_feasible_bytes = smallest_feasible_bytes(budget);
    }
    return p;
}

// ---------------------------------------------------------------------------------------- the smallest budget --

// Of the plans that hold least at once: everything offloaded, or recomputed where that can be.
uint64_t planner::smallest_feasible_bytes(const plan_budget &budget) {
    uint64_t total_bytes = model_.fixed_bytes;
    for (const step_tensor &t : model_.tensors) {
        total_bytes += t.size_bytes;
    }
    uint64_t smallest = ~uint64_t{0};
    for (const bool recompute : {false, true}) {
        plan p;
        for (const step_tensor &t : model_.tensors) {
            const bool recomputed = t.can_recompute && (recompute || !t.can_offload);
            p.placement.push_back(recomputed      ? tensor_placement::recompute
                                  : t.can_offload ? tensor_placement::offload
                                                  : tensor_placement::keep);
        }
        plan_budget b = budget;
        // Staging first, while memory is no concern, then the rest.
        const bool staged = budget.mode == memory_mode::staging;
        b.device_bytes = 3 * total_bytes;
        if (staged) {
            p.staging_bytes = least_where(0, total_bytes, [&](uint64_t bytes) {
                p.staging_bytes = bytes;
                return evaluator_.evaluate(p, b).feasible;
            });
        }
        smallest = std::min(smallest, least_where(0, 3 * total_bytes, [&](uint64_t bytes) {
                                b.device_bytes = bytes;
                                return evaluator_.evaluate(p, b).feasible;
                            }));
    }
    return smallest > 3 * total_bytes ? 0 : smallest;
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
