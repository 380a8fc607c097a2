// Adaptive keep: SSDTrain, with host memory in the place of its SSDs.
//
// Models: a tensor is copied out where it is saved; its memory is free when it is stored, without anybody waiting. One
// step is measured first: from its times and the store rate it follows which modules (halves of layers) are stored
// before their backward would ask for them; the others are kept from then on. Backward copies in a chunk of two modules
// ahead of the one that runs. What has not been stored yet by then is handed over as it is.
// Leaves out: the time that its threads take, and stores that are called off.
// Row: D2H at save; freed when stored; a chunk of two modules ahead; a bound that is measured once. It knows no limit
// of device memory: what it holds follows from rates. Nothing to set.

#include "policy/baseline_player.hpp"

namespace ebb::baselines {

namespace {

constexpr uint32_t k_modules_ahead = 2;

struct measured_module {
    event_id saved{}, stored{}, needed{};
    uint64_t size_bytes = 0;
};

// Copies everything out and lets it stay.
class measuring_rule : public baseline_rule {
public:
    measuring_rule(baseline_player &on, std::vector<measured_module> &to) : on_(on), what_(on.outline()), to_(to) {
        to_.assign(what_.modules().size(), {});
    }
    void produced(uint32_t tensor) override {
        measured_module &m = to_[what_.module_of(tensor)];
        m.saved = on_.now();
        on_.copy_out(tensor, on_.out());
        m.stored = on_.copied_out_event(tensor);
        m.size_bytes += on_.step().model.tensors[tensor].size_bytes;
    }
    void needed(uint32_t tensor) override {
        measured_module &m = to_[what_.module_of(tensor)];
        m.needed = m.needed == event_id{} ? on_.now() : m.needed;
    }

private:
    baseline_player &on_;
    const step_outline &what_;
    std::vector<measured_module> &to_;
};

// By module: whether it would be stored in time, after those before it that are.
std::vector<uint8_t> modules_stored_in_time(baseline_player &on, const std::vector<measured_module> &measured) {
    std::vector<uint8_t> offloaded(measured.size(), 0);
    if (measured.empty()) {
        return offloaded;
    }
    const event_id start = measured.front().saved;
    double busy_ns = 0;
    double all_bytes = 0;
    double stored_at_ns = 0;
    for (const measured_module &m : measured) {
        const double end_ns = on.ns_between(start, m.stored);
        busy_ns += end_ns - std::max(stored_at_ns, on.ns_between(start, m.saved));
        stored_at_ns = end_ns;
        all_bytes += static_cast<double>(m.size_bytes);
    }
    const double ns_per_byte = std::max(0.0, busy_ns) / all_bytes;
    double at_ns = 0;
    for (size_t m = 0; m < measured.size(); ++m) {
        const double saved_at_ns = on.ns_between(start, measured[m].saved);
        const double end_ns = std::max(at_ns, saved_at_ns) + ns_per_byte * static_cast<double>(measured[m].size_bytes);
        if (end_ns <= on.ns_between(start, measured[m].needed)) {
            offloaded[m] = 1;
            at_ns = end_ns;
        }
    }
    return offloaded;
}

class adaptive_rule : public baseline_rule {
public:
    adaptive_rule(baseline_player &on, const std::vector<uint8_t> &offloaded)
        : on_(on), what_(on.outline()), offloaded_(offloaded) {
        begun_.assign(what_.modules().size(), 0);
        brought_.assign(what_.modules().size(), 0);
    }

    void produced(uint32_t tensor) override {
        if (offloaded_[what_.module_of(tensor)] != 0) {
            on_.copy_out(tensor, on_.out());
        }
    }
    void needed(uint32_t tensor) override {
        const uint32_t module = what_.module_of(tensor);
        if (begun_[module] == 0) {
            begun_[module] = 1;
            for (uint32_t back = 0; back <= std::min(k_modules_ahead, module); ++back) {
                bring(module - back, pass_of(module));
            }
        }
        on_.compute_waits_for_copy_in(tensor);
    }

private:
    [[nodiscard]] uint32_t pass_of(uint32_t module) const {
        return what_.layers()[what_.layer_of_tensor(what_.last_of_module(module))].pass;
    }
    void bring(uint32_t module, uint32_t pass) {
        if (pass_of(module) != pass || brought_[module] != 0 || offloaded_[module] == 0) {
            return;
        }
        brought_[module] = 1;
        for (const uint32_t t : what_.modules()[module]) {
            if (on_.is_stored(t)) {
                on_.give_up_when_stored(t);
                on_.copy_in(t, on_.in());
            }
        }
    }

    baseline_player &on_;
    const step_outline &what_;
    const std::vector<uint8_t> &offloaded_;
    std::vector<uint8_t> begun_, brought_;  // by module
};

class adaptive_keep : public baseline {
public:
    [[nodiscard]] const char *name() const noexcept override { return "adaptive keep"; }
    [[nodiscard]] std::vector<setting> settings(const built_step & /*step*/) const override { return {{"-", 0, 0}}; }
    [[nodiscard]] result<baseline_result> play(const built_step &step, const sim_machine &machine,
                                               uint64_t device_budget_bytes,
                                               const setting & /*chosen*/) const override {
        std::vector<measured_module> measured;
        baseline_player first(step, machine, device_budget_bytes);
        const result<baseline_result> played =
            first.play([&](baseline_player &on) { return std::make_unique<measuring_rule>(on, measured); });
        if (!played.ok()) {
            return played.why();
        }
        const std::vector<uint8_t> offloaded = modules_stored_in_time(first, measured);
        return play_rule(step, machine, device_budget_bytes,
                         [&](baseline_player &on) { return std::make_unique<adaptive_rule>(on, offloaded); });
    }
};

}  // namespace

std::unique_ptr<baseline> make_adaptive_keep() {
    return std::make_unique<adaptive_keep>();
}

}  // namespace ebb::baselines
