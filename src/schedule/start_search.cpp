#include "schedule/start_search.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ebb {

namespace {

constexpr uint32_t k_most_elites = 24;
constexpr uint32_t k_listed_counts = 64;
constexpr uint32_t k_coarse_counts = 8;
constexpr int k_repairs = 5;
constexpr double k_staging_factors[] = {1, 2, 4, 8, 1.5, 3, 6, 12, 16, 24};
constexpr size_t k_coarse_factors = 4;

}  // namespace

start_search::start_search(const step_model &model, const plan_budget &budget, const step_bound &bound,
                           const plan_starts &starts, plan_search &search)
    : budget_(budget),
      staged_(budget.mode == memory_mode::staging),
      sizes_staging_(staged_ && budget.fixed_staging_bytes == 0),
      bound_(bound),
      starts_(starts),
      search_(search),
      pool_bytes_(budget.device_bytes - std::min(budget.device_bytes, model.fixed_bytes)) {}

void start_search::run(double evaluations) {
    list_points();
    last_ = search_.spent() + evaluations;
    try_listed(true, evaluations / 2);
    climb();
    try_listed(false, evaluations);
}

// By the bound for what they recompute: the most promising first.
void start_search::list_points() {
    const uint32_t all = starts_.recomputable();
    const uint32_t steps = std::min(all, k_listed_counts);
    std::vector<uint32_t> counts;
    for (uint32_t i = 0; i <= steps; ++i) {
        counts.push_back(steps == 0 ? 0 : static_cast<uint32_t>(uint64_t{all} * i / steps));
    }
    const auto bound_ns = [this](uint32_t count) {
        return bound_.at_recomputed_ns(static_cast<double>(starts_.recomputed_bytes(count)));
    };
    const uint32_t promising = *std::min_element(counts.begin(), counts.end(),
                                                 [&](uint32_t a, uint32_t b) { return bound_ns(a) < bound_ns(b); });
    const size_t stride = (counts.size() + k_coarse_counts - 1) / k_coarse_counts;
    for (size_t i = 0; i < counts.size(); ++i) {
        add_points(counts[i], i % stride == 0, counts[i] == promising);
    }
    std::stable_sort(points_.begin(), points_.end(),
                     [](const point &a, const point &b) { return a.bound_ns < b.bound_ns; });
}

void start_search::add_points(uint32_t recomputed, bool coarse, bool promising) {
    point p;
    p.what.recomputed = recomputed;
    p.bound_ns = bound_.at_recomputed_ns(static_cast<double>(starts_.recomputed_bytes(recomputed)));
    for (size_t f = 0; f < (sizes_staging_ ? std::size(k_staging_factors) : 1); ++f) {
        p.staging_factor = k_staging_factors[f];
        for (uint32_t order = 0; order < plan_starts::k_orders; ++order) {
            p.what.order = order;
            for (uint64_t spare = 0; spare < 3; ++spare) {
                p.spare_bytes = spare * starts_.largest_bytes();
                for (const bool spread : {false, true}) {
                    p.what.kept_spread = spread;
                    if (spread && !staged_) {
                        break;  // in one pool the latest are best kept
                    }
                    for (const uint64_t first : kept_first_choices()) {
                        p.what.kept_first_bytes = first;
                        p.coarse = f < k_coarse_factors && (promising || (coarse && order == 0 && spare < 2));
                        points_.push_back(p);
                    }
                }
            }
        }
    }
}

void start_search::try_listed(bool coarse, double evaluations) {
    const double last = std::min(last_, search_.spent() + evaluations);
    for (const point &p : points_) {
        if (search_.over() || search_.spent() >= last || p.bound_ns >= search_.best().step_ns) {
            return;
        }
        if (p.coarse == coarse) {
            try_point(p);
        }
    }
}

void start_search::climb() {
    uint32_t step = std::max(1U, starts_.recomputable() / k_coarse_counts / 2);
    double part = 0.5;
    bool moved = true;  // since the variants were tried
    while (std::isfinite(best_ns_) && !search_.over() && search_.spent() < last_) {
        bool better = moved && climb_variants();
        moved = climb_count(step);
        moved |= climb_memory(part);
        better |= moved;
        if (!better && step == 1 && part < 0.1) {
            return;
        }
        step = better ? step : std::max(1U, step / 2);
        part = better ? part : part / 2;
    }
}

bool start_search::climb_count(uint32_t step) {
    const point from = best_;
    point p = from;
    p.what.recomputed += step;
    bool better = p.what.recomputed <= starts_.recomputable() && try_point(p);
    p = from;
    p.what.recomputed -= std::min(p.what.recomputed, step);
    better |= p.what.recomputed != from.what.recomputed && try_point(p);
    return better;
}

bool start_search::climb_memory(double part) {
    bool better = false;
    if (sizes_staging_) {
        for (const double factor : {1 + part, 1 / (1 + part)}) {
            point p = best_;
            p.staging_factor *= factor;
            better |= try_point(p);
        }
    }
    const auto step_bytes = static_cast<uint64_t>(2 * part * static_cast<double>(starts_.largest_bytes()));
    point p = best_;
    p.spare_bytes += step_bytes;
    better |= try_point(p);
    p = best_;
    p.spare_bytes -= std::min(p.spare_bytes, step_bytes);
    better |= p.spare_bytes != best_.spare_bytes && try_point(p);
    return better;
}

bool start_search::climb_variants() {
    bool better = false;
    const point from = best_;
    for (uint32_t order = 0; order < plan_starts::k_orders; ++order) {
        point p = from;
        p.what.order = order;
        better |= order != from.what.order && try_point(p);
    }
    for (const uint64_t first : kept_first_choices()) {
        point p = best_;
        p.what.kept_first_bytes = first;
        better |= first != best_.what.kept_first_bytes && try_point(p);
    }
    point p = best_;
    p.what.kept_spread = !p.what.kept_spread;
    better |= try_point(p);
    return better;
}

void start_search::size_staging(point &p) {
    if (!sizes_staging_) {
        p.what.staging_bytes = staged_ ? budget_.fixed_staging_bytes : 0;
        return;
    }
    // How much is in use at once depends on what is kept, and that on how large staging is: one round is near enough.
    p.what.kept_limit_bytes = pool_bytes_ - std::min(pool_bytes_, p.spare_bytes);
    starts_.build(p.what, scratch_);
    const auto used = static_cast<double>(starts_.used_at_once_bytes(scratch_));
    p.what.staging_bytes = static_cast<uint64_t>(used * p.staging_factor);
}

// What kept and recomputed tensors hold at once is known without an evaluation.
void start_search::build_within(point &p) {
    const uint64_t limit_bytes = pool_bytes_ - std::min(pool_bytes_, p.what.staging_bytes);
    for (int i = 0; i < k_repairs; ++i) {
        starts_.build(p.what, scratch_);
        const uint64_t peak_bytes = starts_.fixed_peak_bytes(scratch_);
        if (peak_bytes <= limit_bytes || p.what.kept_limit_bytes == 0) {
            return;
        }
        p.what.kept_limit_bytes -= std::min(p.what.kept_limit_bytes, peak_bytes - limit_bytes);
    }
}

// What does not fit keeps less, or stages more. True: the best so far.
bool start_search::try_point(const point &tried) {
    point p = tried;
    size_staging(p);
    const uint64_t apart_bytes = p.what.staging_bytes + p.spare_bytes;
    p.what.kept_limit_bytes = pool_bytes_ - std::min(pool_bytes_, apart_bytes);
    for (int i = 0; i < k_repairs; ++i) {
        build_within(p);
        const double step_ns = search_.offer(scratch_);
        if (std::isfinite(step_ns)) {
            remember(step_ns, scratch_);
            const bool better = step_ns < best_ns_;
            if (better) {
                best_ns_ = step_ns;
                best_ = tried;
            }
            return better;
        }
        const evaluation &said = search_.said();
        const bool more_helps = said.missing_in_staging ? sizes_staging_ : p.what.kept_limit_bytes != 0;
        if (said.missing_on_host || !more_helps) {
            return false;
        }
        if (said.missing_in_staging) {
            p.what.staging_bytes += said.missing_bytes;
        }
        p.what.kept_limit_bytes -= std::min(p.what.kept_limit_bytes, said.missing_bytes);
    }
    return false;
}

void start_search::offer(const plan &p) {
    const double step_ns = search_.offer(p);
    if (std::isfinite(step_ns)) {
        remember(step_ns, p);
    }
}

void start_search::remember(double step_ns, const plan &p) {
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

}  // namespace ebb
