// Prefetch: the window over the record's uses. Uses are taken in their order and never overtake: the window stops at
// the first that cannot be served yet, and goes on in the call after which it can.

#include <algorithm>

#include "runtime/runtime.hpp"

namespace ebb {

void runtime::pump() {
    wish_ = {};
    if (!following() || recomputing_ || recompute_due_ || options_.prefetch_bytes == k_none_bytes) {
        return;
    }
    if (!staging_->block_taken() && !options_.lent_allocator) {
        return;  // nothing of the record moves; slots that come all the same are allocated by reloads alone
    }
    if (window_ < record_.reload_at(position_)) {
        window_ = record_.reload_at(position_);
        waiting_for_slot_ = k_no_index;
    }
    if (waiting_for_slot_ == k_no_index) {  // else no slot was freed since the last try
        move_window();
    }
}

void runtime::move_window() {
    const auto count = static_cast<uint32_t>(record_.reloads().size());
    while (window_ < count && consider(window_) == verdict::pass) {
        ++window_;
    }
}

runtime::verdict runtime::consider(uint32_t number) {
    const step_record::reload &r = record_.reloads()[number];
    if (passed_[number] == step_number_) {
        return verdict::pass;
    }
    const step_record::entry &entry = record_.entries()[r.entry];
    if (bound_[r.entry] == 0) {
        // Missing from this step, or not produced yet.
        return entry.produced_at < position_ ? verdict::pass : verdict::stop;
    }
    const index i = activations_.find(bound_[r.entry]);
    if (i == k_no_index) {
        return verdict::pass;  // released
    }
    const index b = body_of(i);
    activation &body = activations_[b];
    switch (body.state) {
        case activation_state::offloading:
            // Given up before its use: prefetched then. Else it will be forwarded.
            return entry.given_up_before_use ? verdict::stop : verdict::pass;
        case activation_state::resident:
            passed_[number] = step_number_;
            ++body.expected_uses;
            return verdict::pass;
        case activation_state::offloaded:
            if (const std::optional<verdict> other = instead_of_prefetch(body)) {
                return *other;
            }
            return depth_allows(body, r.event) ? prefetch(i, number) : verdict::stop;
        default:
            return verdict::pass;
    }
}

runtime::verdict runtime::prefetch(index i, uint32_t number) {
    const index b = body_of(i);
    activation &body = activations_[b];
    if (links_wanted()) {
        prefetch_held_ = true;
        return verdict::stop;
    }
    if (options_.lent_allocator && supply_.memory == nullptr) {
        const uint64_t footprint = staging::slot_footprint_bytes(body.size_bytes, body.data);
        if (lent_cap_allows(footprint) && leaves_room(footprint, record_.reloads()[number].event)) {
            wish_ = {footprint, body.home};
        }
        return verdict::stop;
    }
    bool room = false;
    if (status s = make_slot(body, room, false); !s.ok()) {
        remember_failure(naming("prefetch", body.name, std::move(s)));
        return verdict::stop;
    }
    if (!room) {
        // A lent allocator is asked again in the next call: what it gave was for another.
        waiting_for_slot_ = options_.lent_allocator ? k_no_index : i;
        return verdict::stop;
    }
    counters_.device_peak_bytes = std::max(counters_.device_peak_bytes, held_bytes());  // lent slots count as they come
    const profile_range profiled_here = profiled("prefetch", body);
    if (status s = copy_in(body); !s.ok()) {
        remember_failure(std::move(s));
        return verdict::pass;  // its reload will try again, and say so
    }
    passed_[number] = step_number_;
    body.expected_uses = 1;
    unclaimed_add(b, false);
    return verdict::pass;
}

// In one pool a slot must not take what kept activations and those computed again will need before its use.
bool runtime::leaves_room(uint64_t footprint_bytes, uint32_t use_event) {
    if (held_bytes() + footprint_bytes > budget_bytes()) {
        return false;
    }
    if (use_event < position_) {
        return true;
    }
    const uint64_t moving_bytes = source_bytes_ + forwarded_bytes_ + staging_->held_bytes();
    const uint64_t fixed_bytes = position_ == 0 ? 0 : reserve_.over(record_.fixed_bytes(), position_ - 1, use_event);
    return moving_bytes + footprint_bytes + fixed_bytes <= budget_bytes();
}

// How far reloads may run ahead of their use.
bool runtime::depth_allows(const activation &body, uint32_t event) const noexcept {
    if (options_.prefetch_bytes == k_automatic) {
        return true;
    }
    if (options_.prefetch_bytes != k_one_layer) {
        return unclaimed_.empty() || unclaimed_bytes_ + body.size_bytes <= options_.prefetch_bytes;
    }
    // The layer in use, and the next one; before the first use of a step the layer that comes first.
    const std::vector<step_record::event> &events = record_.events();
    uint32_t end = last_use_ == k_no_index ? record_.first_use() : last_use_;
    end = end == k_no_index ? k_no_index : events[end].layer_end;
    if (last_use_ != k_no_index && end != k_no_index) {
        end = events[end].layer_end;
    }
    return event < end;  // k_no_index is beyond every event
}

}  // namespace ebb
