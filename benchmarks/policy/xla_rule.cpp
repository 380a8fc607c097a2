#include "policy/xla_rule.hpp"

#include <algorithm>
#include <string>

namespace ebb::baselines {

xla_rule::xla_rule(baseline_player &on, xla_loop loop, size_t most_going)
    : on_(on), what_(on.outline()), loop_(loop), most_going_(most_going), reloaded_(on.step().iterations.size(), 0) {}

// -------------------------------------------------------------------------------------------------------- forward --

void xla_rule::produced(uint32_t tensor) {
    if (most_going_ != 0 && out_.size() + out_before_.size() >= most_going_) {
        // The wait for the oldest has to stand before the start of one more.
        std::deque<uint32_t> &oldest = out_before_.empty() ? out_ : out_before_;
        on_.give_up(oldest.front());
        oldest.pop_front();
    }
    on_.copy_out(tensor, on_.out());
    out_.push_back(tensor);
}

void xla_rule::wait_out(std::deque<uint32_t> &going) {
    for (const uint32_t t : going) {
        on_.give_up(t);
    }
    going.clear();
}

void xla_rule::ends(uint32_t /*iteration*/) {
    if (loop_ == xla_loop::own_iteration) {
        wait_out(out_);
        return;
    }
    wait_out(out_before_);
    std::swap(out_, out_before_);
}

// ------------------------------------------------------------------------------------------------------- backward --

// Pipelined: this iteration's copies were asked for by the one before it; at a loop's first one there may have been
// none.
void xla_rule::begins(uint32_t iteration) {
    reload_for(iteration);
    if (loop_ == xla_loop::pipelined && iteration + 1 < on_.step().iterations.size()) {
        reload_for(iteration + 1);
    }
}

void xla_rule::reload_for(uint32_t iteration) {
    const uint32_t layer = what_.layer_of_iteration(iteration);
    if (layer == k_no_index || !on_.step().iterations[iteration].backward || reloaded_[iteration] != 0) {
        return;
    }
    const std::vector<uint32_t> &tensors = what_.layers()[layer].first_used;
    // Of the iteration before, which is still computing them.
    const bool is_there = std::all_of(tensors.begin(), tensors.end(), [&](uint32_t t) { return on_.is_going_out(t); });
    if (!is_there) {
        return;
    }
    reloaded_[iteration] = 1;
    // What a loop before has written has ended for the program before it is read.
    for (std::deque<uint32_t> *going : {&out_before_, &out_}) {
        if (std::any_of(tensors.begin(), tensors.end(),
                        [&](uint32_t t) { return std::find(going->begin(), going->end(), t) != going->end(); })) {
            wait_out(*going);
        }
    }
    to_come_.insert(to_come_.end(), tensors.begin(), tensors.end());
    start_reloads();
}

void xla_rule::start_reloads() {
    while (!to_come_.empty() && (most_going_ == 0 || coming_.size() < most_going_)) {
        on_.copy_in(to_come_.front(), on_.in());
        coming_.push_back(to_come_.front());
        to_come_.pop_front();
    }
}

// Copies come in their order, so those before it are there as well.
void xla_rule::needed(uint32_t tensor) {
    while (!on_.is_here(tensor) || std::find(coming_.begin(), coming_.end(), tensor) != coming_.end()) {
        on_.compute_waits_for_copy_in(coming_.front());
        coming_.pop_front();
        start_reloads();
    }
}

std::vector<setting> xla_settings() {
    std::vector<setting> all;
    for (const uint64_t limit : {1U, 2U, 4U, 8U, 0U}) {
        all.push_back({limit == 0 ? "no limit" : std::to_string(limit) + " at once", limit, 0});
    }
    return all;
}

}  // namespace ebb::baselines
