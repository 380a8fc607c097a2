// A fixed policy: what the user says should happen to which activations, by name.
//
//   offload | keep                      everything
//   pattern=value,pattern=value,...     the first pattern that matches counts; what matches none is kept, so that a
//                                       list of names moves just these. End the list with *=offload for the contrary.
//
// Values are MaxText's: remat, device, offload; keep is device by another name, auto is the default, offload. A
// pattern is a glob (* any text, also across '/'; ? any one character) that must match the whole name
// ("decoder/layer.3/gate") or its last component ("gate"): MaxText's names (query_proj, mlpwi_0, ...) are
// patterns as they stand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace ebb {

// The numbers are those of ebb_placement in include/ebb/ebb.h.
enum class policy_placement : uint8_t { keep = 1, offload = 2, recompute = 3, automatic = 4 };

struct policy_decision {
    policy_placement placement = policy_placement::offload;
    std::optional<uint32_t> rule;  // which rule decided; none: the name matched no rule
};

class policy {
public:
    struct rule {
        std::string pattern;
        policy_placement placement = policy_placement::offload;
        uint64_t match_count = 0;  // names, as each is decided once
    };

    policy() = default;  // offloads everything

    // `called` is how a message names the text: the option's field or variable.
    [[nodiscard]] static result<policy> parse(std::string_view text, std::string_view called = "policy");

    // Called once per name, not per activation: it compares texts and counts matches.
    [[nodiscard]] policy_decision decide(std::string_view full_name) noexcept;

    [[nodiscard]] const std::vector<rule> &rules() const noexcept { return rules_; }
    // Patterns that no name has matched so far: often a misspelt name, so reports show them.
    [[nodiscard]] std::vector<std::string> unmatched_rules() const;

private:
    std::vector<rule> rules_;
    policy_placement rest_ = policy_placement::offload;
};

// Whether a glob of * and ? matches the whole text.
[[nodiscard]] bool glob_matches(std::string_view pattern, std::string_view text) noexcept;

}  // namespace ebb
