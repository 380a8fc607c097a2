#include "cli/recorded_policy.hpp"

#include <fmt/format.h>

#include "observe/plan_json.hpp"
#include "schedule/policy.hpp"

namespace ebb::cli {

namespace {

bool can_be(const step_tensor &t, tensor_placement placement) noexcept {
    return placement == tensor_placement::keep      ? t.can_keep
           : placement == tensor_placement::offload ? t.can_offload
                                                    : t.can_recompute;
}

tensor_placement nearest_possible(const step_tensor &t, tensor_placement wanted) noexcept {
    return can_be(t, wanted) ? wanted
           : t.can_keep      ? tensor_placement::keep
           : t.can_offload   ? tensor_placement::offload
                             : tensor_placement::recompute;
}

void place_only_so(step_tensor &t, tensor_placement placement) noexcept {
    const bool again = placement == tensor_placement::recompute;
    t.can_keep = t.can_keep && !again;
    t.can_offload = t.can_offload && !again;
    t.can_recompute = t.can_recompute && again;
}

}  // namespace

status apply_recorded_policy(const std::string &text, bool only, built_step &step) {
    result<policy> parsed = policy::parse(text == "automatic" || text == "recompute" ? "remat" : text, "--policy");
    if (!parsed.ok()) {
        return parsed.why();
    }
    policy rules = std::move(parsed).value();
    for (step_tensor &t : step.model.tensors) {
        const policy_decision decided = rules.decide(t.name);
        const auto wanted = static_cast<tensor_placement>(decided.placement);
        if (decided.rule && !can_be(t, wanted)) {
            return {code::invalid_argument,
                    fmt::format("--policy: {} is to be {}, which the recorded step does not allow", t.name,
                                placement_name(wanted))};
        }
        const tensor_placement placement = nearest_possible(t, wanted);
        step.save_set.placement.push_back(placement);
        if (only) {
            place_only_so(t, placement);
        }
    }
    for (const std::string &pattern : rules.unmatched_rules()) {
        step.notes.push_back(fmt::format("policy: \"{}\" is the name of no tensor here; is it spelt right?", pattern));
    }
    return {};
}

}  // namespace ebb::cli
