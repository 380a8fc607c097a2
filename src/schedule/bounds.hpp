// What no plan can beat: lower bounds of the step time for a model and a budget, whatever is kept, offloaded or
// recomputed. The planner stops where it meets them, and a user reads the gap to them.
//
// The device holds at most M bytes. Where A bytes are alive, A - M - y have left it, y being recomputed later:
//   before a produce  they were copied out since the oldest of them was produced;
//   at a release      they will be copied in before the last use of what is alive.
// What does not fit beside the work of those spans (item 10 of the fluid view) is exposed, and y bytes cost at least
// their share of the tensors that are cheapest to recompute per byte. The best y is a minimum of a convex function.
// A chain of equal tensors, of which only whole ones move, gets the bound by (n, c, k) this way.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/plan.hpp"
#include "schedule/step_model.hpp"

namespace ebb {

class step_bound {
public:
    step_bound(const step_model &model, const plan_budget &budget);

    // The model's own time: work, and collectives that work does not cover.
    [[nodiscard]] double compute_ns() const noexcept { return compute_ns_; }
    // Of any plan.
    [[nodiscard]] double best_ns() const noexcept { return best_ns_; }
    // Of any plan that recomputes that many bytes.
    [[nodiscard]] double at_recomputed_ns(double recomputed_bytes) const;

private:
    struct piece {  // of recompute cost by bytes, cheapest first: where it begins
        double at_bytes = 0;
        double cost_ns = 0;
        double ns_per_byte = 0;
    };

    void follow_events(const step_model &model);
    void sort_pieces(const step_model &model);
    void find_best();
    void look_inside(size_t piece);
    void consider(double recomputed_bytes);
    [[nodiscard]] double recompute_cost_ns(double recomputed_bytes) const;

    double memory_bytes_ = 0;
    double host_bytes_ = 0;
    double d2h_ns_per_byte_ = 0;
    double h2d_ns_per_byte_ = 0;
    double unit_bytes_ = 0;  // all tensors have this size; 0: they differ
    double work_ns_ = 0;
    double compute_ns_ = 0;
    // The largest of (time that all that is alive takes on the link) - (work it may hide behind).
    double d2h_before_uses_ns_ = 0;
    double d2h_ns_ = 0;
    double h2d_ns_ = 0;
    double least_recomputed_bytes_ = 0;  // for want of host memory
    std::vector<piece> pieces_;          // the last is the end
    double best_ns_ = 0;
};

}  // namespace ebb
