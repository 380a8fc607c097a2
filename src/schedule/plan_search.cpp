#include "schedule/plan_search.hpp"

#include <algorithm>
#include <numeric>

namespace ebb {

namespace {

constexpr double k_infinite_ns = std::numeric_limits<double>::infinity();
// What is gained must be more than rounding.
constexpr double k_least_gain = 1e-10;
constexpr tensor_placement k_placements[] = {tensor_placement::keep, tensor_placement::offload,
                                             tensor_placement::recompute};
// Of the larger neighbourhoods, how many moves a walk judges at most.
constexpr uint64_t k_most_flips = 512;
constexpr uint64_t k_most_pairs = 600;

}  // namespace

plan_search::plan_search(const step_model &model, evaluator &judge, const plan_budget &budget,
                         const std::vector<std::vector<uint32_t>> &classes)
    : model_(model),
      judge_(judge),
      budget_(budget),
      classes_(classes),
      sizes_staging_(budget.mode == memory_mode::staging && budget.fixed_staging_bytes == 0) {}

bool plan_search::met() const noexcept {
    return best_.step_ns <= bound_ns_ * (1 + k_least_gain);
}

double plan_search::offer(const plan &p) {
    const evaluation &e = judge_.evaluate(p, budget_);
    count_evaluation();
    said_ = &e;
    if (!e.feasible) {
        return k_infinite_ns;
    }
    const double step_ns = e.step_ns;
    if (step_ns < best_.step_ns) {
        best_.step_ns = step_ns;
        best_.what = p;
    }
    return step_ns;
}

// A quarter of the time goes into preparing.
void plan_search::count_evaluation() {
    ++evaluations_;
    spent_ += 0.25 + 0.75 * judge_.share_run();
}

bool plan_search::may(uint32_t tensor, tensor_placement where) const {
    const step_tensor &t = model_.tensors[tensor];
    return where == tensor_placement::keep      ? t.can_keep
           : where == tensor_placement::offload ? t.can_offload
                                                : t.can_recompute;
}

bool plan_search::set(uint32_t tensor, tensor_placement where) {
    tensor_placement &is = now_->what.placement[tensor];
    if (is == where || !may(tensor, where)) {
        return false;
    }
    changes_.push_back({tensor, is});
    recompute_ns_ -= is == tensor_placement::recompute ? model_.tensors[tensor].recompute_ns : 0;
    recompute_ns_ += where == tensor_placement::recompute ? model_.tensors[tensor].recompute_ns : 0;
    is = where;
    return true;
}

// One of the two other placements of a tensor.
bool plan_search::flip(uint64_t code) {
    const auto tensor = static_cast<uint32_t>(code / 2);
    const auto is = static_cast<uint64_t>(now_->what.placement[tensor]) - 1;
    return set(tensor, k_placements[(is + 1 + code % 2) % 3]);
}

void plan_search::undo() {
    for (auto c = changes_.rbegin(); c != changes_.rend(); ++c) {
        tensor_placement &is = now_->what.placement[c->tensor];
        recompute_ns_ -= is == tensor_placement::recompute ? model_.tensors[c->tensor].recompute_ns : 0;
        is = c->before;
        recompute_ns_ += is == tensor_placement::recompute ? model_.tensors[c->tensor].recompute_ns : 0;
    }
    changes_.clear();
    now_->what.staging_bytes = staging_before_;
}

// A plan that falls short by little on one side of staging may fit with the border moved.
bool plan_search::fit_staging(const evaluation &said) {
    if (!sizes_staging_ || said.missing_bytes == 0 || said.missing_on_host) {
        return false;
    }
    uint64_t &staging_bytes = now_->what.staging_bytes;
    if (!said.missing_in_staging && said.missing_bytes >= staging_bytes) {
        return false;
    }
    staging_bytes += said.missing_in_staging ? said.missing_bytes : 0;
    staging_bytes -= said.missing_in_staging ? 0 : said.missing_bytes;
    return true;
}

// True: the changes stay. What costs more recompute than there is exposed time to win is not even evaluated.
bool plan_search::judge() {
    const double below_ns = now_->step_ns * (1 - k_least_gain);
    const bool changed = !changes_.empty() || now_->what.staging_bytes != staging_before_;
    const evaluation *e = nullptr;
    if (changed && compute_ns_ + recompute_ns_ < below_ns) {
        e = judge_.evaluate_below(now_->what, budget_, below_ns);
        count_evaluation();
        if (e == nullptr && fit_staging(judge_.last())) {
            e = judge_.evaluate_below(now_->what, budget_, below_ns);
            count_evaluation();
        }
    }
    if (e == nullptr) {
        undo();
        return false;
    }
    now_->step_ns = e->step_ns;
    changes_.clear();
    staging_before_ = now_->what.staging_bytes;
    if (now_->step_ns < best_.step_ns) {
        best_ = *now_;
    }
    return true;
}

void plan_search::start_from(candidate &c) {
    now_ = &c;
    changes_.clear();
    staging_before_ = c.what.staging_bytes;
    const evaluation &e = judge_.evaluate(c.what, budget_);
    count_evaluation();
    recompute_ns_ = 0;
    for (uint32_t t = 0; t < c.what.placement.size(); ++t) {
        recompute_ns_ += c.what.placement[t] == tensor_placement::recompute ? model_.tensors[t].recompute_ns : 0;
    }
    c.step_ns = e.step_ns;
    compute_ns_ = e.compute_ns;
}

void plan_search::improve(candidate &c) {
    start_from(c);
    while (!over()) {
        bool better = shift_classes();
        better |= resize_staging();
        better |= flips();
        better |= swaps();
        if (!better && !double_flips()) {
            return;
        }
    }
}

void plan_search::kick() {
    constexpr int k_flips = 4;
    candidate c = best_;
    now_ = &c;
    for (int i = 0; i < k_flips && !c.what.placement.empty(); ++i) {
        static_cast<void>(flip(next_random() % (2 * c.what.placement.size())));
    }
    if (judge_.evaluate(c.what, budget_).feasible) {
        improve(c);
    }
    count_evaluation();
}

uint64_t plan_search::next_random() {
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;
    return random_ >> 20U;
}

// Moves in an order of no pattern, each of them at most once; further ones count from where the walk is. Ends when all
// were tried since the last gain, or `most` were judged.
template <class Move>
bool plan_search::walk(uint64_t moves, uint64_t most, const Move &move) {
    if (moves == 0) {
        return false;
    }
    uint64_t stride = next_random() % moves | 1U;
    while (std::gcd(stride, moves) != 1) {
        ++stride;
    }
    uint64_t at = next_random() % moves;
    const uint64_t judged_at_most = evaluations_ + most;
    bool better = false;
    uint64_t left = moves;
    while (left-- > 0 && evaluations_ < judged_at_most && !over()) {
        if (move(at) && judge()) {
            better = true;
            left = moves - 1;
        } else {
            undo();
        }
        at = (at + stride) % moves;
    }
    return better;
}

bool plan_search::flips() {
    return walk(uint64_t{2} * now_->what.placement.size(), k_most_flips, [this](uint64_t m) { return flip(m); });
}

bool plan_search::swaps() {
    const uint64_t count = now_->what.placement.size();
    return walk(count * count, k_most_pairs, [this, count](uint64_t m) {
        const auto a = static_cast<uint32_t>(m / count);
        const auto b = static_cast<uint32_t>(m % count);
        if (a >= b) {
            return false;
        }
        const tensor_placement of_a = now_->what.placement[a];
        return set(a, now_->what.placement[b]) && set(b, of_a);
    });
}

bool plan_search::double_flips() {
    const uint64_t codes = uint64_t{2} * now_->what.placement.size();
    return walk(codes * codes, k_most_pairs, [this, codes](uint64_t m) {
        return m / codes / 2 < m % codes / 2 && flip(m / codes) && flip(m % codes);
    });
}

// Of tensors that are alike the earliest or the latest ones move together: as many as help, by halves.
bool plan_search::shift_classes() {
    bool better = false;
    for (const std::vector<uint32_t> &members : classes_) {
        if (members.size() < 2) {
            continue;
        }
        for (const tensor_placement from : k_placements) {
            for (const tensor_placement to : k_placements) {
                if (from != to && may(members.front(), to)) {
                    better |= shift_class(members, from, to, true);
                    better |= shift_class(members, from, to, false);
                }
            }
        }
    }
    return better;
}

bool plan_search::shift_class(const std::vector<uint32_t> &members, tensor_placement from, tensor_placement to,
                              bool earliest) {
    const auto count = static_cast<uint64_t>(
        std::count_if(members.begin(), members.end(), [&](uint32_t t) { return now_->what.placement[t] == from; }));
    bool better = false;
    for (uint64_t together = count; together > 0 && !over(); together /= 2) {
        uint64_t left = together;
        for (size_t k = 0; k < members.size() && left != 0; ++k) {
            const uint32_t t = earliest ? members[k] : members[members.size() - 1 - k];
            if (now_->what.placement[t] == from) {
                left -= set(t, to) ? 1 : 0;
            }
        }
        better |= judge();
    }
    return better;
}

bool plan_search::resize_staging() {
    if (!sizes_staging_) {
        return false;
    }
    bool better = false;
    for (uint64_t step_bytes = now_->what.staging_bytes / 2; step_bytes > now_->what.staging_bytes / 64 && !over();
         step_bytes /= 2) {
        now_->what.staging_bytes = staging_before_ + step_bytes;
        better |= judge();
        now_->what.staging_bytes = staging_before_ - std::min(staging_before_, step_bytes);
        better |= judge();
    }
    return better;
}

}  // namespace ebb
