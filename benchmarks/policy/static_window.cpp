// Static window: Transformer Engine's CPU offloading in its second version.
//
// Models: of each pass of L layers the n earliest (`count`) are offloaded. Layer i's tensors are copied out when the
// next layer's forward begins, on one stream that carries both directions. Their memory is free when the forward of
// layer L-n+i begins, for which compute waits; they are copied back in from the time at which the backward of layer
// L-1-n+i begins. So with equal layers at most L-n of them are on the device.
// Leaves out: tensors shared between layers, quantised tensors in parts.
// Row: D2H in the next layer's forward, one stream for both directions; freed at the fixed later layer L-n+i; L-1-n
// layers ahead; (L-n) equal layers. Swept: n, up to L-1.

#include "policy/baseline_player.hpp"
#include "policy/layer_counts.hpp"

namespace ebb::baselines {

namespace {

class static_window_rule : public baseline_rule {
public:
    static_window_rule(baseline_player &on, uint32_t count)
        : on_(on), what_(on.outline()), side_(on.out()), count_(count) {}

    void begins(uint32_t iteration) override {
        const uint32_t layer = what_.layer_of_iteration(iteration);
        if (layer == k_no_index) {
            return;
        }
        const saved_layer &l = what_.layers()[layer];
        on_.step().iterations[iteration].backward ? backward_begins(l) : forward_begins(l);
    }
    void needed(uint32_t tensor) override { on_.compute_waits_for_copy_in(tensor); }

private:
    void forward_begins(const saved_layer &l) {
        const uint32_t layers = what_.layers_of_pass(l.pass);
        const uint32_t offloaded = std::min(count_, layers - 1);
        if (l.position >= 1 && l.position - 1 < offloaded) {
            for (const uint32_t t : tensors_of(l.pass, l.position - 1).moved) {
                on_.copy_out(t, side_);
            }
        }
        if (l.position >= layers - offloaded) {
            for (const uint32_t t : tensors_of(l.pass, l.position - (layers - offloaded)).moved) {
                on_.give_up(t);
            }
        }
    }
    void backward_begins(const saved_layer &l) {
        const uint32_t layers = what_.layers_of_pass(l.pass);
        const uint32_t offloaded = std::min(count_, layers - 1);
        const uint32_t ahead = layers - 1 - offloaded;
        if (l.position >= ahead && l.position - ahead < offloaded) {
            for (const uint32_t t : tensors_of(l.pass, l.position - ahead).first_used) {
                on_.copy_in(t, side_);
            }
        }
    }
    [[nodiscard]] const saved_layer &tensors_of(uint32_t pass, uint32_t position) const {
        return what_.layers()[what_.layer_at(pass, position)];
    }

    baseline_player &on_;
    const step_outline &what_;
    stream_id side_;
    uint32_t count_;
};

class static_window : public baseline {
public:
    [[nodiscard]] const char *name() const noexcept override { return "static window"; }
    [[nodiscard]] std::vector<setting> settings(const built_step &step) const override {
        std::vector<setting> all;
        const uint32_t most = step_outline(step).longest_pass();
        for (const uint32_t count : counts_to_try(most == 0 ? 0 : most - 1)) {
            all.push_back({std::to_string(count) + " layers", count, 0});
        }
        return all;
    }
    [[nodiscard]] result<baseline_result> play(const built_step &step, const sim_machine &machine,
                                               uint64_t device_budget_bytes, const setting &chosen) const override {
        return play_rule(step, machine, device_budget_bytes, [&](baseline_player &on) {
            return std::make_unique<static_window_rule>(on, static_cast<uint32_t>(chosen.count));
        });
    }
};

}  // namespace

std::unique_ptr<baseline> make_static_window() {
    return std::make_unique<static_window>();
}

}  // namespace ebb::baselines
