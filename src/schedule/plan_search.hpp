// The part of planning that tries changes: a plan is improved by moves, each judged by the evaluator, until no move
// helps, the bound is met, or the evaluations are used up.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "schedule/evaluator.hpp"
#include "schedule/plan.hpp"
#include "schedule/step_model.hpp"

namespace ebb {

class plan_search {
public:
    // A plan that a search starts from or arrived at. Infinity: it does not fit.
    struct candidate {
        double step_ns = std::numeric_limits<double>::infinity();
        plan what;
    };

    plan_search(const step_model &model, evaluator &judge, const plan_budget &budget,
                const std::vector<std::vector<uint32_t>> &classes);

    void stop_at(double bound_ns) noexcept { bound_ns_ = bound_ns; }
    void allow(double evaluations) noexcept { limit_ = spent_ + evaluations; }
    [[nodiscard]] bool over() const noexcept { return spent_ >= limit_ || met(); }
    [[nodiscard]] bool met() const noexcept;
    [[nodiscard]] uint64_t evaluations() const noexcept { return evaluations_; }
    // In whole ones: many end early.
    [[nodiscard]] double spent() const noexcept { return spent_; }

    // Judges a plan; the best of all is kept. Infinity if it does not fit.
    double offer(const plan &p);
    // What the evaluator said of the last plan offered.
    [[nodiscard]] const evaluation &said() const noexcept { return *said_; }
    void improve(candidate &c);
    // The best plan again with a few flips that nobody judged, improved: out of a valley that single moves do not
    // leave.
    void kick();
    [[nodiscard]] const candidate &best() const noexcept { return best_; }

private:
    struct change {
        uint32_t tensor = 0;
        tensor_placement before = tensor_placement::keep;
    };

    [[nodiscard]] bool may(uint32_t tensor, tensor_placement where) const;
    [[nodiscard]] bool set(uint32_t tensor, tensor_placement where);
    [[nodiscard]] bool flip(uint64_t code);
    [[nodiscard]] bool judge();
    [[nodiscard]] bool fit_staging(const evaluation &said);
    void undo();
    void count_evaluation();
    [[nodiscard]] uint64_t next_random();
    void start_from(candidate &c);
    [[nodiscard]] bool shift_classes();
    [[nodiscard]] bool shift_class(const std::vector<uint32_t> &members, tensor_placement from, tensor_placement to,
                                   bool earliest);
    [[nodiscard]] bool resize_staging();
    [[nodiscard]] bool flips();
    [[nodiscard]] bool swaps();
    [[nodiscard]] bool double_flips();
    template <class Move>
    [[nodiscard]] bool walk(uint64_t moves, uint64_t most, const Move &move);

    const step_model &model_;
    evaluator &judge_;
    const plan_budget &budget_;
    const std::vector<std::vector<uint32_t>> &classes_;
    const bool sizes_staging_;
    double bound_ns_ = 0;
    uint64_t evaluations_ = 0;
    double spent_ = 0;
    double limit_ = 0;
    const evaluation *said_ = nullptr;
    uint64_t random_ = 1;
    // The plan that moves change, how long it takes without them, and what they changed.
    candidate *now_ = nullptr;
    double recompute_ns_ = 0;  // of it, with the changes
    double compute_ns_ = 0;
    uint64_t staging_before_ = 0;
    std::vector<change> changes_;
    candidate best_;
};

}  // namespace ebb
