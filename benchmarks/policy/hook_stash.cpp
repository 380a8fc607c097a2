// Hook stash: torchtune's OffloadActivations with streams, and TRL's copy of it.
//
// Models: a saved-tensor hook copies each tensor out where it is saved, on one side stream that carries both
// directions. The source stays in a stash of the youngest ones (`count`, 5 as published); when it leaves the stash,
// compute waits for its copy and its memory is free. Backward asks tensor by tensor: what is still in the stash is
// handed back, anything else is copied in where it is used, behind all that is queued on the side stream.
// Leaves out: the time to pin, and that a tensor computed in backward keeps the one before it alive a little longer.
// Row: D2H at save, one stream for both directions; freed after 5 younger tensors, compute waits; no lookahead; a
// count. Swept: count.

#include <deque>

#include "policy/baseline_player.hpp"

namespace ebb::baselines {

namespace {

class hook_stash_rule : public baseline_rule {
public:
    hook_stash_rule(baseline_player &on, size_t count) : on_(on), side_(on.out()), count_(count) {}

    void produced(uint32_t tensor) override {
        on_.copy_out(tensor, side_);
        stash_.push_back(tensor);
        if (stash_.size() > count_) {
            // One that was handed back and is released by now is not here any more.
            if (on_.is_here(stash_.front())) {
                on_.give_up(stash_.front());
            }
            stash_.pop_front();
        }
    }
    void needed(uint32_t tensor) override {
        on_.copy_in(tensor, side_);
        on_.compute_waits_for_copy_in(tensor);
    }

private:
    baseline_player &on_;
    stream_id side_;
    size_t count_;
    std::deque<uint32_t> stash_;
};

class hook_stash : public baseline {
public:
    [[nodiscard]] const char *name() const noexcept override { return "hook stash"; }
    [[nodiscard]] std::vector<setting> settings(const built_step & /*step*/) const override {
        std::vector<setting> all;
        for (const uint64_t count : {1U, 2U, 3U, 5U, 8U, 12U, 20U, 40U, 80U, 160U}) {
            all.push_back({std::to_string(count) + " tensors", count, 0});
        }
        return all;
    }
    [[nodiscard]] result<baseline_result> play(const built_step &step, const sim_machine &machine,
                                               uint64_t device_budget_bytes, const setting &chosen) const override {
        return play_rule(step, machine, device_budget_bytes,
                         [&](baseline_player &on) { return std::make_unique<hook_stash_rule>(on, chosen.count); });
    }
};

}  // namespace

std::unique_ptr<baseline> make_hook_stash() {
    return std::make_unique<hook_stash>();
}

}  // namespace ebb::baselines
