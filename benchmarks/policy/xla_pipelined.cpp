// XLA LHS + pipelined: the latency hiding scheduler with pipelined host offloading, over a loop over layers.
//
// Models: the copies out of an iteration have ended, for the program, one iteration later, and their memory is free
// there; the copies in of an iteration start when the one before it begins. What lies between the loops (head, loss)
// counts as an iteration. `count` copies at most are under way in each direction.
// Leaves out: copies within the device of what a loop carries from one iteration to the next, which the published rows
// suggest; fusions; that the scheduler has to guess the copies' times.
// Row: D2H one iteration later; freed one iteration later; H2D exactly one iteration ahead; asynchronous limit x bytes.
// Swept: the limit.

#include "policy/xla_rule.hpp"

namespace ebb::baselines {

namespace {

class xla_pipelined : public baseline {
public:
    [[nodiscard]] const char *name() const noexcept override { return "XLA pipelined"; }
    [[nodiscard]] std::vector<setting> settings(const built_step & /*step*/) const override { return xla_settings(); }
    [[nodiscard]] result<baseline_result> play(const built_step &step, const sim_machine &machine,
                                               uint64_t device_budget_bytes, const setting &chosen) const override {
        return play_rule(step, machine, device_budget_bytes, [&](baseline_player &on) {
            return std::make_unique<xla_rule>(on, xla_loop::pipelined, chosen.count);
        });
    }
};

}  // namespace

std::unique_ptr<baseline> make_xla_pipelined() {
    return std::make_unique<xla_pipelined>();
}

}  // namespace ebb::baselines
