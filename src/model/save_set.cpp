#include "model/save_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

namespace ebb {

namespace {

// Values that these names stand for are not needed by any backward here: the output of the last product of an MLP goes
// into a sum, whose gradient needs neither term.
constexpr std::string_view k_not_needed[] = {"mlpwo", "moe_mlpwo"};
constexpr std::string_view k_maxtext_names[] = {"decoder_layer_input",
                                                "query_proj",
                                                "key_proj",
                                                "value_proj",
                                                "qkv_proj",
                                                "context",
                                                "out_proj",
                                                "mlpwi",
                                                "mlpwi_0",
                                                "mlpwi_1",
                                                "query_wa_proj",
                                                "mla_q",
                                                "kv_wa_proj",
                                                "mla_kv",
                                                "attention_out",
                                                "moe_mlpwi",
                                                "moe_mlpwi_0",
                                                "moe_mlpwi_1"};

bool is_one_of(std::string_view name, const std::string_view *begin, const std::string_view *end) {
    return std::find(begin, end, name) != end;
}

tensor_placement placement_of_policy(policy_placement p) noexcept {
    return static_cast<tensor_placement>(p);
}

}  // namespace

result<save_set> save_set::parse(const std::string &policy_text) {
    save_set made;
    made.is_empty_ = policy_text.find_first_not_of(' ') == std::string::npos;
    if (!made.is_empty_) {
        result<policy> parsed = policy::parse(policy_text);
        if (!parsed.ok()) {
            return parsed.why();
        }
        made.policy_ = std::move(parsed).value();
        made.is_list_ = !made.policy_.rules().empty();
    }
    return made;
}

// A policy of one word is for all that is worth a decision.
tensor_placement save_set::unnamed(const layer_tensor &tensor, policy_placement rest) const noexcept {
    if (!tensor.can_recompute) {
        const bool moves = !is_empty_ && !is_list_ && rest == policy_placement::offload;
        return moves && tensor.role == tensor_role::saved ? tensor_placement::offload : tensor_placement::keep;
    }
    const bool recompute = is_empty_ || is_list_ || tensor.role == tensor_role::nearly_free;
    return recompute ? tensor_placement::recompute : placement_of_policy(rest);
}

tensor_placement save_set::place(const std::string &layer_name, const layer_tensor &tensor) {
    if (is_empty_ || tensor.role == tensor_role::always_kept) {
        return unnamed(tensor, policy_placement::keep);
    }
    policy_decision decision = policy_.decide(layer_name + '/' + tensor.name);
    for (size_t i = 0; i < tensor.aliases.size() && !decision.rule; ++i) {
        decision = policy_.decide(layer_name + '/' + tensor.aliases[i]);
    }
    if (!decision.rule) {
        return unnamed(tensor, decision.placement);
    }
    if (decision.placement == policy_placement::recompute && !tensor.can_recompute) {
        if (outcome_.ok()) {
            outcome_ = {code::invalid_argument,
                        fmt::format("policy: {}/{} cannot be remat: everything else of the layer is computed again "
                                    "from it; allowed: device or offload",
                                    layer_name, tensor.name)};
        }
        return tensor_placement::keep;
    }
    return placement_of_policy(decision.placement);
}

std::vector<std::string> save_set::notes() const {
    std::vector<std::string> notes;
    for (const std::string &pattern : policy_.unmatched_rules()) {
        if (is_one_of(pattern, std::begin(k_not_needed), std::end(k_not_needed))) {
            notes.push_back(
                fmt::format("policy: {} is not needed by backward, so nothing is saved under it.", pattern));
        } else if (is_one_of(pattern, std::begin(k_maxtext_names), std::end(k_maxtext_names))) {
            notes.push_back(fmt::format("policy: no layer of this model has a {}.", pattern));
        } else {
            notes.push_back(fmt::format("policy: \"{}\" is the name of no tensor here; is it spelt right?", pattern));
        }
    }
    return notes;
}

}  // namespace ebb
