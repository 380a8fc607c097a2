#include "transfer/timelines.hpp"

#include <algorithm>
#include <string>

#include "base/check.hpp"

namespace ebb {

namespace {

constexpr uint64_t k_first_ring = 64;
constexpr size_t k_recycle_above = 64;  // callers that make streams without end reuse the lines of idle ones
constexpr size_t k_max_lines = 1U << 16U;

}  // namespace

timelines::~timelines() {
    for (line &l : lines_) {
        for (const event_id event : l.ring) {
            static_cast<void>(device_.destroy_event(event));
        }
    }
    if (has_join_stream_) {
        static_cast<void>(device_.destroy_stream(join_stream_));
    }
}

result<uint16_t> timelines::of(stream_id stream) {
    EBB_CHECK(stream != k_calling_thread);
    if (last_ < lines_.size() && lines_[last_].stream == stream) {
        return last_;
    }
    if (const auto found = by_stream_.find(static_cast<uint64_t>(stream)); found != by_stream_.end()) {
        last_ = found->second;
        return last_;
    }
    return bind(stream);
}

result<uint16_t> timelines::own(stream_id stream) {
    result<uint16_t> index = of(stream);
    if (index.ok()) {
        lines_[index.value()].owned = true;
    }
    return index;
}

result<uint16_t> timelines::bind(stream_id stream) {
    if (lines_.size() >= k_recycle_above) {
        for (size_t i = 0; i < lines_.size(); ++i) {
            line &l = lines_[i];
            EBB_TRY(poll(l));
            // Its old tickets stay right: they are all at or below `completed`, which only grows.
            if (l.issued == l.completed && l.pinned.empty() && !l.owned) {
                by_stream_.erase(static_cast<uint64_t>(l.stream));
                l.stream = stream;
                last_ = static_cast<uint16_t>(i);
                by_stream_.emplace(static_cast<uint64_t>(stream), last_);
                return last_;
            }
        }
    }
    if (lines_.size() == k_max_lines) {
        return status(code::unsupported, "more than 65536 streams have work of Ebb's in flight at once");
    }
    line fresh;
    fresh.stream = stream;
    lines_.push_back(std::move(fresh));
    last_ = static_cast<uint16_t>(lines_.size() - 1);
    by_stream_.emplace(static_cast<uint64_t>(stream), last_);
    return last_;
}

status timelines::make_place(line &l) {
    EBB_TRY(poll(l));
    return l.issued - l.completed == l.ring.size() ? grow(l) : status();
}

// Called when every event of the ring is in flight: each moves to its point's place in the larger ring.
status timelines::grow(line &l) {
    const uint64_t old_size = l.ring.size();
    const uint64_t new_size = old_size == 0 ? k_first_ring : old_size * 2;
    std::vector<event_id> ring(new_size);
    // The places of points (issued, completed + new_size] are those not taken by points in flight.
    for (uint64_t s = l.issued + 1; s <= l.completed + new_size; ++s) {
        result<event_id> event = device_.create_event(event_kind::plain);
        if (!event.ok()) {
            for (uint64_t made = l.issued + 1; made < s; ++made) {
                static_cast<void>(device_.destroy_event(ring[made % new_size]));
            }
            return event.why();
        }
        ring[s % new_size] = event.value();
    }
    for (uint64_t s = l.completed + 1; s <= l.issued; ++s) {
        EBB_CHECK(old_size != 0);
        ring[s % new_size] = l.ring[s % old_size];
    }
    l.ring = std::move(ring);
    return {};
}

status timelines::join(ticket_set &set, ticket t) {
    EBB_TRY(ensure_join_stream());
    EBB_TRY(wait(join_stream_, set));
    EBB_TRY(wait(join_stream_, t));
    ticket joined;
    EBB_TRY(mark(join_stream_, joined));
    set.clear();
    EBB_CHECK(set.add(joined));
    return {};
}

status timelines::ensure_join_stream() {
    if (!has_join_stream_) {
        result<stream_id> made = device_.create_stream(stream_role::join);
        if (!made.ok()) {
            return made.why();
        }
        join_stream_ = made.value();
        has_join_stream_ = true;
        result<uint16_t> owned = own(join_stream_);
        if (!owned.ok()) {
            return owned.why();
        }
    }
    return {};
}

status timelines::poll() {
    for (line &l : lines_) {
        EBB_TRY(poll(l));
    }
    return {};
}

// What is pinned, and what comes after it, is not forgotten: somebody blocks on that event outside of the lock.
status timelines::poll(line &l) {
    const auto first_pinned = std::min_element(l.pinned.begin(), l.pinned.end());
    const uint64_t last = first_pinned == l.pinned.end() ? l.issued : *first_pinned - 1;
    // Points of one stream are reached in their order: the newest first, for when all are done, then by halves.
    uint64_t not_done = last + 1;
    for (uint64_t asked = last; l.completed + 1 < not_done; asked = l.completed + (not_done - l.completed) / 2) {
        result<bool> done = device_.event_done(l.event(asked));
        if (!done.ok()) {
            return done.why();
        }
        (done.value() ? l.completed : not_done) = asked;
    }
    return {};
}

result<bool> timelines::done(ticket t) {
    if (known_done(t)) {
        return true;
    }
    line &l = lines_[t.timeline];
    EBB_TRY(poll(l));
    if (known_done(t)) {
        return true;
    }
    return l.pinned.empty() ? result<bool>(false) : device_.event_done(l.event(t.sequence));
}

result<timelines::pinned_event> timelines::pin(ticket t) {
    if (known_done(t)) {
        return pinned_event{};
    }
    line &l = lines_[t.timeline];
    l.pinned.push_back(t.sequence);
    return pinned_event{l.event(t.sequence), t, true};
}

void timelines::unpin(const pinned_event &p) noexcept {
    if (p.needed) {
        std::vector<uint64_t> &pinned = lines_[p.point.timeline].pinned;
        const auto found = std::find(pinned.begin(), pinned.end(), p.point.sequence);
        EBB_CHECK(found != pinned.end());
        *found = pinned.back();
        pinned.pop_back();
    }
}

status timelines::synchronize(ticket t) {
    if (known_done(t)) {
        return {};
    }
    line &l = lines_[t.timeline];
    EBB_TRY(device_.synchronize_event(l.event(t.sequence)));
    return poll(l);
}

status timelines::synchronize_all() {
    status first_failure;
    for (size_t i = 0; i < lines_.size(); ++i) {
        if (status s = synchronize(point(static_cast<uint16_t>(i), lines_[i].issued)); !s.ok() && first_failure.ok()) {
            first_failure = std::move(s);
        }
    }
    return first_failure;
}

}  // namespace ebb
