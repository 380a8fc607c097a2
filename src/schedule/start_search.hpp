// The part of planning that finds where to begin: the family of plans that few numbers describe (plan_start), first at
// a few points, then uphill from the best of them, then all. The best distinct plans of it are what moves improve.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "schedule/bounds.hpp"
#include "schedule/plan_search.hpp"
#include "schedule/plan_starts.hpp"

namespace ebb {

class start_search {
public:
    start_search(const step_model &model, const plan_budget &budget, const step_bound &bound, const plan_starts &starts,
                 plan_search &search);

    // With so many evaluations at most, and only while the bound is not met.
    void run(double evaluations);
    // Another plan among the best ones, if it fits.
    void offer(const plan &p);
    [[nodiscard]] std::vector<plan_search::candidate> &elites() noexcept { return elites_; }

private:
    // Spare: what of the device kept tensors leave free. Staging as a multiple of what is in use at once.
    struct point {
        plan_start what;
        uint64_t spare_bytes = 0;
        double staging_factor = 0;
        double bound_ns = 0;
        bool coarse = false;
    };

    void list_points();
    void add_points(uint32_t recomputed, bool coarse, bool promising);
    void try_listed(bool coarse, double evaluations);
    void climb();
    [[nodiscard]] bool climb_count(uint32_t step);
    [[nodiscard]] bool climb_memory(double part);
    [[nodiscard]] bool climb_variants();
    bool try_point(const point &p);
    void size_staging(point &p);
    void build_within(point &p);
    // How much is kept before recomputes are chosen: the layer whose backward comes first, all, or nothing.
    [[nodiscard]] std::array<uint64_t, 3> kept_first_choices() const {
        return {starts_.layer_bytes(), ~uint64_t{0}, 0};
    }
    void remember(double step_ns, const plan &p);

    const plan_budget &budget_;
    const bool staged_;
    const bool sizes_staging_;  // else it is given
    const step_bound &bound_;
    const plan_starts &starts_;
    plan_search &search_;
    uint64_t pool_bytes_ = 0;
    double last_ = 0;
    std::vector<point> points_;
    std::vector<plan_search::candidate> elites_;
    point best_;
    double best_ns_ = std::numeric_limits<double>::infinity();
    plan scratch_;
};

}  // namespace ebb
