#include "policy/baseline.hpp"

namespace ebb::baselines {

namespace {

// Less is better: what fits before what does not.
bool is_better(const baseline_result &a, const baseline_result &b) {
    if (a.out_of_memory != b.out_of_memory) {
        return b.out_of_memory;
    }
    return a.out_of_memory ? a.device_peak_bytes < b.device_peak_bytes : a.step_ns < b.step_ns;
}

}  // namespace

std::vector<std::unique_ptr<baseline>> make_all_baselines() {
    std::vector<std::unique_ptr<baseline>> all;
    for (const auto make : {make_synchronous, make_hook_stash, make_double_buffer, make_static_window,
                            make_module_groups, make_xla_own_iteration, make_xla_pipelined, make_adaptive_keep}) {
        all.push_back(make());
    }
    return all;
}

result<best_setting> play_best(const baseline &what, const built_step &step, const sim_machine &machine,
                               uint64_t device_budget_bytes) {
    best_setting best;
    bool any = false;
    for (const setting &s : what.settings(step)) {
        const result<baseline_result> played = what.play(step, machine, device_budget_bytes, s);
        if (!played.ok()) {
            return played.why();
        }
        if (!any || is_better(played.value(), best.result)) {
            best = {s, played.value()};
            any = true;
        }
    }
    best.result.out_of_memory = best.result.out_of_memory || !any;
    return best;
}

}  // namespace ebb::baselines
