// XLA LHS only: the latency hiding scheduler without pipelined host offloading, over a loop over layers.
//
// Models: a tensor's copy out starts where it is computed and has ended, for the program, at the end of its own loop
// iteration; there its memory is free. Backward: the copies in of an iteration start when it begins, in the order in
// which they are needed, and each first user waits for its own. So what a copy takes longer than the rest of its
// iteration is exposed. `count` copies at most are under way in each direction.
// Leaves out: fusions and layout copies, and that the scheduler has to guess the copies' times.
// Row: D2H at its place in the compile-time schedule, inside its own loop iteration; freed at the iteration's end;
// H2D inside the iteration; asynchronous limit. Swept: the limit.

#include "policy/xla_rule.hpp"

namespace ebb::baselines {

namespace {

class xla_own_iteration : public baseline {
public:
    [[nodiscard]] const char *name() const noexcept override { return "XLA LHS"; }
    [[nodiscard]] std::vector<setting> settings(const built_step & /*step*/) const override { return xla_settings(); }
    [[nodiscard]] result<baseline_result> play(const built_step &step, const sim_machine &machine,
                                               uint64_t device_budget_bytes, const setting &chosen) const override {
        return play_rule(step, machine, device_budget_bytes, [&](baseline_player &on) {
            return std::make_unique<xla_rule>(on, xla_loop::own_iteration, chosen.count);
        });
    }
};

}  // namespace

std::unique_ptr<baseline> make_xla_own_iteration() {
    return std::make_unique<xla_own_iteration>();
}

}  // namespace ebb::baselines
