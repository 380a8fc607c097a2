#include "schedule/policy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ebb {

namespace {

constexpr std::string_view k_values = "remat, device, offload, keep or auto";

std::optional<policy_placement> placement_of(std::string_view value) noexcept {
    if (value == "auto") {
        return policy_placement::automatic;
    }
    if (value == "offload") {
        return policy_placement::offload;
    }
    if (value == "keep" || value == "device") {
        return policy_placement::keep;
    }
    if (value == "remat") {
        return policy_placement::recompute;
    }
    return std::nullopt;
}

// A piece of the policy and where it starts, so that messages can point at it.
struct piece {
    std::string_view text;
    size_t start = 0;

    [[nodiscard]] piece trimmed() const noexcept {
        piece p = *this;
        while (!p.text.empty() && p.text.front() == ' ') {
            p.text.remove_prefix(1);
            ++p.start;
        }
        while (!p.text.empty() && p.text.back() == ' ') {
            p.text.remove_suffix(1);
        }
        return p;
    }
    [[nodiscard]] piece part(size_t from, size_t size) const noexcept {
        return piece{text.substr(from, size), start + from}.trimmed();
    }
};

status bad(std::string_view called, std::string_view whole, const piece &at, const std::string &why) {
    return {code::invalid_argument, fmt::format("{} \"{}\", at character {}: {}", called, whole, at.start + 1, why)};
}

result<policy::rule> parse_rule(const piece &entry, std::string_view called, std::string_view whole) {
    const size_t equals = entry.text.find('=');
    if (equals == std::string_view::npos) {
        return bad(
            called, whole, entry,
            fmt::format("\"{}\" is not pattern=value; a list holds such pairs, a policy of one word is offload or keep",
                        entry.text));
    }
    const piece pattern = entry.part(0, equals);
    const piece value = entry.part(equals + 1, std::string_view::npos);
    if (pattern.text.empty()) {
        return bad(called, whole, entry, "the pattern before '=' is empty; use * for every name");
    }
    const std::optional<policy_placement> placement = placement_of(value.text);
    if (!placement) {
        return bad(called, whole, value, fmt::format("\"{}\" is not a value; allowed: {}", value.text, k_values));
    }
    return policy::rule{std::string(pattern.text), *placement, 0};
}

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view text) noexcept {
    size_t p = 0;
    size_t t = 0;
    // Where to go on after a mismatch: the last star, taking one character more than the last time.
    size_t star = std::string_view::npos;
    size_t resume = 0;
    while (t < text.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            resume = t;
        } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
            ++p;
            ++t;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            t = ++resume;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*') {
        ++p;
    }
    return p == pattern.size();
}

result<policy> policy::parse(std::string_view text, std::string_view called) {
    policy parsed;
    const piece whole = piece{text, 0}.trimmed();
    if (const std::optional<policy_placement> everything = placement_of(whole.text)) {
        parsed.rest_ = *everything;
        return parsed;
    }
    parsed.rest_ = policy_placement::keep;
    for (size_t start = 0; start <= text.size();) {
        const size_t comma = std::min(text.find(',', start), text.size());
        const piece entry = piece{text, 0}.part(start, comma - start);
        if (entry.text.empty()) {
            return bad(called, text, entry,
                       "an entry is missing; allowed: offload, keep, or pattern=value,pattern=value,...");
        }
        result<rule> made = parse_rule(entry, called, text);
        if (!made.ok()) {
            return made.why();
        }
        parsed.rules_.push_back(std::move(made).value());
        start = comma + 1;
    }
    return parsed;
}

policy_decision policy::decide(std::string_view full_name) noexcept {
    const size_t slash = full_name.rfind('/');
    const std::string_view last = slash == std::string_view::npos ? full_name : full_name.substr(slash + 1);
    for (uint32_t i = 0; i < rules_.size(); ++i) {
        rule &candidate = rules_[i];
        if (glob_matches(candidate.pattern, full_name) || glob_matches(candidate.pattern, last)) {
            ++candidate.match_count;
            return {candidate.placement, i};
        }
    }
    return {rest_, std::nullopt};
}

std::vector<std::string> policy::unmatched_rules() const {
    std::vector<std::string> patterns;
    for (const rule &r : rules_) {
        if (r.match_count == 0) {
            patterns.push_back(r.pattern);
        }
    }
    return patterns;
}

}  // namespace ebb
