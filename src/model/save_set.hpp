// A policy in MaxText's names, applied to the tensors of layers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "model/layer_graph.hpp"
#include "schedule/plan.hpp"
#include "schedule/policy.hpp"

namespace ebb {

class save_set {
public:
    [[nodiscard]] static result<save_set> parse(const std::string &policy_text);

    [[nodiscard]] tensor_placement place(const std::string &layer_name, const layer_tensor &tensor);
    // The first tensor that the policy wants computed again and that cannot be.
    [[nodiscard]] const status &outcome() const noexcept { return outcome_; }
    // What was written and means no tensor here: MaxText's names that backward does not need, or misspelt ones.
    [[nodiscard]] std::vector<std::string> notes() const;

private:
    [[nodiscard]] tensor_placement unnamed(const layer_tensor &tensor, policy_placement rest) const noexcept;

    policy policy_;
    bool is_empty_ = false;
    bool is_list_ = false;
    status outcome_;
};

}  // namespace ebb
