// Group: Megatron's fine-grained activation offloading.
//
// Models: a group is one module of a layer, here its attention half or its MLP half. When its last tensor is there, the
// group is committed: copied out, and its memory left to the caching allocator, which knows that a copy reads it. When
// the backward of a group begins, the one before it is copied in: one group ahead, last in first out. The last groups
// of each pass stay (`window`, Megatron's margin). `count` groups at most are on their way out, else compute waits;
// 0: no limit.
// Leaves out: the time to pin (its pool does that), and that the allocator waits for all copies at once and from the
// host when memory is short; here compute waits for as many as it takes, on the device.
// Row: D2H at group commit; freed as the allocator sees it; one group ahead, LIFO; a count, optional.
// Swept: count and window.

#include <deque>

#include "policy/baseline_player.hpp"
#include "policy/layer_counts.hpp"

namespace ebb::baselines {

namespace {

class module_groups_rule : public baseline_rule {
public:
    module_groups_rule(baseline_player &on, size_t most_going, uint32_t margin)
        : on_(on), what_(on.outline()), most_going_(most_going) {
        mark_kept(margin);
    }

    void produced(uint32_t tensor) override {
        const uint32_t module = what_.module_of(tensor);
        if (what_.last_of_module(module) != tensor || stays_[module] != 0) {
            return;
        }
        if (most_going_ != 0 && going_.size() == most_going_) {
            on_.compute_waits_for_event(going_.front());
            going_.pop_front();
        }
        for (const uint32_t t : what_.modules()[module]) {
            on_.copy_out(t, on_.out());
        }
        for (const uint32_t t : what_.modules()[module]) {
            on_.give_up_to_allocator(t);
        }
        going_.push_back(on_.copied_out_event(what_.modules()[module].back()));
    }

    void needed(uint32_t tensor) override {
        const uint32_t module = what_.module_of(tensor);
        copy_in(module);
        if (begun_[module] == 0) {
            begun_[module] = 1;
            if (module != 0 && is_out(module - 1)) {
                copy_in(module - 1);
            }
        }
        on_.compute_waits_for_copy_in(tensor);
    }

private:
    // The youngest groups of each pass.
    void mark_kept(uint32_t margin) {
        const size_t modules = what_.modules().size();
        stays_.assign(modules, 0);
        begun_.assign(modules, 0);
        brought_.assign(modules, 0);
        std::vector<uint32_t> of_pass(what_.passes(), 0);
        for (size_t m = modules; m-- > 0;) {
            const uint32_t pass =
                what_.layers()[what_.layer_of_tensor(what_.last_of_module(static_cast<uint32_t>(m)))].pass;
            stays_[m] = ++of_pass[pass] <= margin ? 1 : 0;
        }
    }
    [[nodiscard]] bool is_out(uint32_t module) const { return on_.is_going_out(what_.last_of_module(module)); }
    void copy_in(uint32_t module) {
        if (std::exchange(brought_[module], uint8_t{1}) != 0) {
            return;
        }
        for (const uint32_t t : what_.modules()[module]) {
            on_.copy_in(t, on_.in());
        }
    }

    baseline_player &on_;
    const step_outline &what_;
    size_t most_going_;
    std::vector<uint8_t> stays_, begun_, brought_;  // by module
    std::deque<event_id> going_;                    // behind the copies of each
};

class module_groups : public baseline {
public:
    [[nodiscard]] const char *name() const noexcept override { return "group"; }
    [[nodiscard]] std::vector<setting> settings(const built_step &step) const override {
        std::vector<setting> all;
        for (const uint32_t margin : counts_to_try(2 * step_outline(step).longest_pass())) {
            for (const uint64_t going : {0U, 1U, 4U}) {
                const std::string limit = going == 0 ? "" : ", " + std::to_string(going) + " at a time";
                all.push_back({"last " + std::to_string(margin) + " stay" + limit, going, margin});
            }
        }
        return all;
    }
    [[nodiscard]] result<baseline_result> play(const built_step &step, const sim_machine &machine,
                                               uint64_t device_budget_bytes, const setting &chosen) const override {
        return play_rule(step, machine, device_budget_bytes, [&](baseline_player &on) {
            return std::make_unique<module_groups_rule>(on, chosen.count, static_cast<uint32_t>(chosen.window));
        });
    }
};

}  // namespace

std::unique_ptr<baseline> make_module_groups() {
    return std::make_unique<module_groups>();
}

}  // namespace ebb::baselines
