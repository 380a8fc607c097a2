// Synchronous: PyTorch's torch.autograd.graph.save_on_cpu(pin_memory=True).
//
// Models: each tensor is copied to pinned memory where it is saved, on the compute stream, and the host waits for it;
// its memory is free at once. It is copied back where it is used, on the compute stream again.
// Leaves out: the time to pin (as if the blocks were there), and that it also moves what is too small to be worth it.
// Row: D2H at save, blocks compute; freed at once; no lookahead; no bound. Nothing to set.

#include "policy/baseline_player.hpp"

namespace ebb::baselines {

namespace {

class synchronous_rule : public baseline_rule {
public:
    explicit synchronous_rule(baseline_player &on) : on_(on) {}

    void produced(uint32_t tensor) override {
        on_.copy_out(tensor, on_.compute());
        on_.host_waits_for_copy_out(tensor);
        on_.give_up(tensor);
    }
    void needed(uint32_t tensor) override { on_.copy_in(tensor, on_.compute()); }

private:
    baseline_player &on_;
};

class synchronous : public baseline {
public:
    [[nodiscard]] const char *name() const noexcept override { return "synchronous"; }
    [[nodiscard]] std::vector<setting> settings(const built_step & /*step*/) const override { return {{"-", 0, 0}}; }
    [[nodiscard]] result<baseline_result> play(const built_step &step, const sim_machine &machine,
                                               uint64_t device_budget_bytes,
                                               const setting & /*chosen*/) const override {
        return play_rule(step, machine, device_budget_bytes,
                         [](baseline_player &on) { return std::make_unique<synchronous_rule>(on); });
    }
};

}  // namespace

std::unique_ptr<baseline> make_synchronous() {
    return std::make_unique<synchronous>();
}

}  // namespace ebb::baselines
