// What no baseline is measured without: keeping everything, and computing everything again that can be.
//
// keep: nothing moves. Either really all is kept, or what is computed again in no time (norms, the SwiGLU product) is
// not; the faster one that fits counts.
// recompute: all that can be is computed again where its layer's backward begins; the rest, the layers' inputs, is
// kept.

#include "policy/baseline_player.hpp"

namespace ebb::baselines {

namespace {

result<baseline_result> play_placed(const built_step &step, const sim_machine &machine, uint64_t device_budget_bytes,
                                    const plan &placed) {
    built_step changed = step;
    changed.save_set = placed;
    return play_rule(changed, machine, device_budget_bytes,
                     [](baseline_player &) { return std::make_unique<baseline_rule>(); });
}

class keep : public baseline {
public:
    [[nodiscard]] const char *name() const noexcept override { return "keep"; }
    [[nodiscard]] std::vector<setting> settings(const built_step & /*step*/) const override {
        return {{"all", 0, 0}, {"all but what is nearly free", 1, 0}};
    }
    [[nodiscard]] result<baseline_result> play(const built_step &step, const sim_machine &machine,
                                               uint64_t device_budget_bytes, const setting &chosen) const override {
        plan placed = step.save_set;
        for (size_t t = 0; t < placed.placement.size(); ++t) {
            const bool free = chosen.count != 0 && step.role[t] == tensor_role::nearly_free;
            placed.placement[t] = free ? tensor_placement::recompute : tensor_placement::keep;
        }
        return play_placed(step, machine, device_budget_bytes, placed);
    }
};

class recompute : public baseline {
public:
    [[nodiscard]] const char *name() const noexcept override { return "recompute"; }
    [[nodiscard]] std::vector<setting> settings(const built_step & /*step*/) const override { return {{"-", 0, 0}}; }
    [[nodiscard]] result<baseline_result> play(const built_step &step, const sim_machine &machine,
                                               uint64_t device_budget_bytes,
                                               const setting & /*chosen*/) const override {
        plan placed = step.save_set;
        for (size_t t = 0; t < placed.placement.size(); ++t) {
            const bool can = step.model.tensors[t].can_recompute;
            placed.placement[t] = can ? tensor_placement::recompute : tensor_placement::keep;
        }
        return play_placed(step, machine, device_budget_bytes, placed);
    }
};

}  // namespace

std::unique_ptr<baseline> make_keep() {
    return std::make_unique<keep>();
}

std::unique_ptr<baseline> make_recompute() {
    return std::make_unique<recompute>();
}

}  // namespace ebb::baselines
