#include "device/sim/shadow_memory.hpp"

#include <algorithm>
#include <iterator>

namespace ebb {

shadow_memory::content shadow_memory::shifted(content holds, uint64_t by_bytes) noexcept {
    holds.position_bytes += holds.what == state::tagged ? by_bytes : 0;
    return holds;
}

// No range crosses `at` afterwards.
void shadow_memory::split(uint64_t at) {
    const auto after = ranges_.upper_bound(at);
    if (after == ranges_.begin()) {
        return;
    }
    const auto holds = std::prev(after);
    if (holds->first == at || holds->second.end <= at) {
        return;
    }
    ranges_.emplace_hint(after, at, part{holds->second.end, shifted(holds->second.holds, at - holds->first)});
    holds->second.end = at;
}

void shadow_memory::join_with_next(map::iterator left) {
    const auto right = std::next(left);
    if (right == ranges_.end() || right->first != left->second.end) {
        return;
    }
    const content follows = shifted(left->second.holds, left->second.end - left->first);
    const content &holds = right->second.holds;
    if (holds.what == follows.what && holds.tag == follows.tag && holds.position_bytes == follows.position_bytes) {
        left->second.end = right->second.end;
        ranges_.erase(right);
    }
}

void shadow_memory::set(uint64_t begin, uint64_t end, const content &holds) {
    if (begin >= end) {
        return;
    }
    split(begin);
    split(end);
    ranges_.erase(ranges_.lower_bound(begin), ranges_.lower_bound(end));
    if (holds.what == state::none) {
        return;
    }
    const auto made = ranges_.emplace(begin, part{end, holds}).first;
    join_with_next(made);
    if (made != ranges_.begin()) {
        join_with_next(std::prev(made));
    }
}

void shadow_memory::look(uint64_t begin, uint64_t end, std::vector<range> &found) const {
    auto at = ranges_.upper_bound(begin);
    if (at != ranges_.begin() && std::prev(at)->second.end > begin) {
        --at;
    }
    uint64_t next = begin;
    for (; next < end && at != ranges_.end() && at->first < end; ++at) {
        if (at->first > next) {
            found.push_back({next, at->first, {}});
            next = at->first;
        }
        const uint64_t until = std::min(end, at->second.end);
        found.push_back({next, until, shifted(at->second.holds, next - at->first)});
        next = until;
    }
    if (next < end) {
        found.push_back({next, end, {}});
    }
}

}  // namespace ebb
