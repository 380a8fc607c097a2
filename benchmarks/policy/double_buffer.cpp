// Double buffer: Transformer Engine's CPU offloading in its first version.
//
// Models: of each pass the `count` earliest layers are offloaded. The layers of the pass are divided into as many
// windows. A layer's tensors are copied out in one window, from the edge before it on; at the edge compute and the
// copy stream wait for each other, the layer's memory is free, and the next layer's copies begin. Backward mirrors it:
// at each edge both streams wait for each other, and the next layer's tensors are copied in. At most two layers are on
// their way at any time.
// Leaves out: that it knows one pass at a time (here each micro-batch has its own windows), double-buffer tensors that
// are reused instead of freed, and that it offloads what certain modules mark, not all that is saved.
// Row: D2H at a layer's end; freed at the next window edge, two-way wait; one layer ahead; a number of layers.
// Swept: count, up to all layers but one, the most that it allows.

#include "policy/baseline_player.hpp"
#include "policy/layer_counts.hpp"

namespace ebb::baselines {

namespace {

class double_buffer_rule : public baseline_rule {
public:
    double_buffer_rule(baseline_player &on, uint32_t count) : on_(on), what_(on.outline()), count_(count) {
        closed_.resize(what_.passes());
    }

    void ends(uint32_t iteration) override {
        const uint32_t layer = what_.layer_of_iteration(iteration);
        if (layer == k_no_index || on_.step().iterations[iteration].backward) {
            return;
        }
        const saved_layer &l = what_.layers()[layer];
        if (l.position == 0 && offloaded(l.pass) != 0) {
            copy_out(l.pass, 0);
        }
        uint32_t &closed = closed_[l.pass];
        if (closed < offloaded(l.pass) && edge(l.pass, closed) == l.position) {
            on_.compute_waits_for(on_.out());
            for (const uint32_t t : what_.layers()[what_.layer_at(l.pass, closed)].moved) {
                on_.give_up(t);
            }
            if (++closed < offloaded(l.pass)) {
                copy_out(l.pass, closed);
            }
        }
    }

    void begins(uint32_t iteration) override {
        const uint32_t layer = what_.layer_of_iteration(iteration);
        if (layer == k_no_index || !on_.step().iterations[iteration].backward) {
            return;
        }
        const saved_layer &l = what_.layers()[layer];
        uint32_t &closed = closed_[l.pass];
        if (closed != 0 && edge(l.pass, closed - 1) == l.position) {
            on_.compute_waits_for(on_.in());
            for (const uint32_t t : what_.layers()[what_.layer_at(l.pass, closed - 1)].first_used) {
                on_.copy_in(t, on_.in());
            }
            --closed;
        }
        if (l.position == 0) {
            on_.compute_waits_for(on_.in());
        }
    }

private:
    [[nodiscard]] uint32_t offloaded(uint32_t pass) const { return std::min(count_, what_.layers_of_pass(pass) - 1); }
    // The position at whose end the window of an offloaded layer closes: windows as even as it goes, the first ones
    // longer.
    [[nodiscard]] uint32_t edge(uint32_t pass, uint32_t window) const {
        const uint32_t layers = what_.layers_of_pass(pass);
        const uint32_t windows = offloaded(pass);
        return layers / windows * (window + 1) - 1 + std::min(window + 1, layers % windows);
    }
    void copy_out(uint32_t pass, uint32_t position) {
        for (const uint32_t t : what_.layers()[what_.layer_at(pass, position)].moved) {
            on_.copy_out(t, on_.out());
        }
    }

    baseline_player &on_;
    const step_outline &what_;
    uint32_t count_;
    std::vector<uint32_t> closed_;  // by pass: windows
};

class double_buffer : public baseline {
public:
    [[nodiscard]] const char *name() const noexcept override { return "double buffer"; }
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
            return std::make_unique<double_buffer_rule>(on, static_cast<uint32_t>(chosen.count));
        });
    }
};

}  // namespace

std::unique_ptr<baseline> make_double_buffer() {
    return std::make_unique<double_buffer>();
}

}  // namespace ebb::baselines
