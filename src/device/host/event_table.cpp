#include "device/host/event_table.hpp"

#include <fmt/core.h>

#include "device/handle_number.hpp"

namespace ebb {
namespace {

status no_such_event(event_id event) {
    return {code::invalid_argument,
            fmt::format("event {}: no event of this host device has that number; it was destroyed, or comes from "
                        "another device",
                        static_cast<uint64_t>(event))};
}

}  // namespace

event_table::slot *event_table::find(event_id event) {
    const auto number = static_cast<uint64_t>(event);
    const uint32_t index = handle_index(number);
    return number != 0 && index < slots_.size() && slots_[index].number == number ? &slots_[index] : nullptr;
}

result<event_id> event_table::create(event_kind kind) {
    const std::lock_guard lock(mutex_);
    if (free_slots_.empty()) {
        if (slots_.size() == size_t{1} << k_handle_index_bits) {
            return status{code::device_error,
                          fmt::format("create_event: {} events are alive, the most a host device has; "
                                      "destroy events that are no longer used",
                                      slots_.size())};
        }
        free_slots_.push_back(static_cast<uint32_t>(slots_.size()));
        slots_.emplace_back();
    }
    const uint32_t index = free_slots_.back();
    free_slots_.pop_back();
    slots_[index] = {new_handle_number(index), kind, nullptr};
    return event_id{slots_[index].number};
}

status event_table::destroy(event_id event) {
    const std::lock_guard lock(mutex_);
    slot *found = find(event);
    if (found == nullptr) {
        return no_such_event(event);
    }
    if (found->latest != nullptr) {
        markers_.release(found->latest);
    }
    *found = {};
    free_slots_.push_back(handle_index(static_cast<uint64_t>(event)));
    return {};
}

result<marker *> event_table::new_marker(event_id event) {
    const std::lock_guard lock(mutex_);
    const slot *found = find(event);
    if (found == nullptr) {
        return no_such_event(event);
    }
    return markers_.take(found->kind, 2);
}

status event_table::set_latest(event_id event, marker *recorded) {
    const std::lock_guard lock(mutex_);
    slot *found = find(event);
    if (found == nullptr) {
        markers_.release(recorded);
        return no_such_event(event);
    }
    if (found->latest != nullptr) {
        markers_.release(found->latest);
    }
    found->latest = recorded;
    return {};
}

result<marker *> event_table::latest(event_id event) {
    const std::lock_guard lock(mutex_);
    const slot *found = find(event);
    if (found == nullptr) {
        return no_such_event(event);
    }
    if (found->latest != nullptr) {
        marker_pool::hold(found->latest);
    }
    return found->latest;
}

result<bool> event_table::done(event_id event) {
    const std::lock_guard lock(mutex_);
    const slot *found = find(event);
    if (found == nullptr) {
        return no_such_event(event);
    }
    // As CUDA has it, an event that was never recorded has nothing outstanding.
    return found->latest == nullptr || found->latest->passed();
}

result<uint64_t> event_table::time_of(event_id event, const char *which) {
    const slot *found = find(event);
    if (found == nullptr) {
        return no_such_event(event);
    }
    const auto refused = [&](code c, const char *why) {
        return status{c, fmt::format("elapsed_ns: the {} event {} {}", which, static_cast<uint64_t>(event), why)};
    };
    if (found->kind != event_kind::timed) {
        return refused(code::invalid_argument, "takes no times; create it as event_kind::timed");
    }
    if (found->latest == nullptr) {
        return refused(code::invalid_argument, "was never recorded");
    }
    if (!found->latest->passed()) {
        return refused(code::wrong_state, "is not done; ask event_done or call synchronize_event first");
    }
    return found->latest->time_ns();
}

result<uint64_t> event_table::elapsed_ns(event_id start, event_id end) {
    const std::lock_guard lock(mutex_);
    const result<uint64_t> from = time_of(start, "start");
    if (!from.ok()) {
        return from;
    }
    const result<uint64_t> until = time_of(end, "end");
    if (!until.ok()) {
        return until;
    }
    // Events of different streams may have passed the other way round: no time between them then.
    return until.value() > from.value() ? until.value() - from.value() : 0;
}

}  // namespace ebb
