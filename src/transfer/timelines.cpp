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
    for (const stream_id stream : own_streams_) {
        static_cast<void>(device_.destroy_stream(stream));
    }
}

result<uint16_t> timelines::of(stream_id stream) {
    result<capture_id> capture = capture_of(stream);
    if (!capture.ok()) {
        return capture.why();
    }
    if (capture.value() != capture_id::none && !is_open(capture.value())) {
        return status(code::wrong_state,
                      "the stream is part of a capture that this call's other streams are not part of");
    }
    return of(stream, capture.value());
}

result<uint16_t> timelines::of(stream_id stream, capture_id capture) {
    EBB_CHECK(stream != k_calling_thread);
    const line *const found = find(stream, capture);
    if (found == nullptr) {
        return bind(stream, capture);
    }
    last_ = static_cast<uint16_t>(found - lines_.data());
    return last_;
}

timelines::line *timelines::find(stream_id stream, capture_id capture) noexcept {
    if (lines_[last_].stream == stream && lines_[last_].capture == capture) {
        return &lines_[last_];
    }
    if (capture == capture_id::none) {
        const auto found = by_stream_.find(static_cast<uint64_t>(stream));
        return found == by_stream_.end() ? nullptr : &lines_[found->second];
    }
    const auto found = std::find_if(lines_.begin(), lines_.end(), [stream, capture](const line &l) {
        return l.stream == stream && l.capture == capture;
    });
    return found == lines_.end() ? nullptr : &*found;
}

result<uint16_t> timelines::own(stream_id stream, capture_id capture) {
    result<uint16_t> index = of(stream, capture);
    if (index.ok()) {
        lines_[index.value()].owned = true;
    }
    return index;
}

// Old tickets of a line that is used again stay right: they are all at or below `completed`, which only grows.
bool timelines::reuse_idle_line(uint16_t &index) {
    if (!idle_lines_.empty()) {
        index = idle_lines_.back();
        idle_lines_.pop_back();
        return true;
    }
    if (lines_.size() < k_recycle_above) {
        return false;
    }
    for (size_t i = 0; i < lines_.size(); ++i) {
        line &l = lines_[i];
        if (l.capture == capture_id::none && l.issued == l.completed && l.pinned.empty() && !l.owned) {
            by_stream_.erase(static_cast<uint64_t>(l.stream));
            index = static_cast<uint16_t>(i);
            return true;
        }
    }
    return false;
}

result<uint16_t> timelines::bind(stream_id stream, capture_id capture) {
    if (lines_.size() >= k_recycle_above && idle_lines_.empty()) {
        EBB_TRY(poll());
    }
    uint16_t index = 0;
    if (!reuse_idle_line(index)) {
        if (lines_.size() == k_max_lines) {
            return status(code::unsupported, "more than 65536 streams have work of Ebb's in flight at once");
        }
        lines_.emplace_back();
        index = static_cast<uint16_t>(lines_.size() - 1);
    }
    lines_[index].stream = stream;
    lines_[index].capture = capture;
    lines_[index].wait_count = 0;
    if (capture == capture_id::none) {
        by_stream_.emplace(static_cast<uint64_t>(stream), index);
    }
    last_ = index;
    return index;
}

// ---------------------------------------------------------------------------------------------- captures --

result<capture_id> timelines::ask_capture_of(stream_id stream) {
    for (uint32_t i = 0; i < known_count_; ++i) {
        if (known_[i].stream == stream) {
            return known_[i].capture;
        }
    }
    result<capture_id> capture = device_.capture_of(stream);
    if (capture.ok() && known_count_ < k_most_known) {
        known_[known_count_++] = {stream, capture.value()};
    }
    return capture;
}

bool timelines::is_open(capture_id capture) const noexcept {
    return std::find(open_captures_.begin(), open_captures_.end(), capture) != open_captures_.end();
}

result<bool> timelines::reachable(ticket t, capture_id from) {
    if (known_done(t) || lines_[t.timeline].capture == from) {
        return true;
    }
    return lines_[t.timeline].capture == capture_id::none ? done(t) : result<bool>(false);
}

// `capture` is not the point's.
status timelines::wait_across(capture_id capture, ticket t) {
    const result<bool> over = reachable(t, capture);
    if (!over.ok()) {
        return over.why();
    }
    if (over.value()) {
        return {};
    }
    if (lines_[t.timeline].capture != capture_id::none) {
        return {code::wrong_state,
                "what it must come behind is part of a capture that was not joined: ebb_graph_join comes first"};
    }
    return {code::wrong_state,
            "a capture cannot come behind work outside of it that is still under way: synchronize the device before "
            "the capture begins"};
}

status timelines::mark_other(stream_id stream, ticket &t) {
    result<uint16_t> index = of(stream);
    return index.ok() ? mark_line(index.value(), t) : index.why();
}

status timelines::wait_not_done(stream_id stream, ticket t) {
    capture_id capture = capture_id::none;
    if (captures_) {
        const result<capture_id> asked = ask_capture_of(stream);
        if (!asked.ok()) {
            return asked.why();
        }
        capture = asked.value();
    }
    return lines_[t.timeline].owned ? wait_for_ours(stream, capture, t) : wait_in(stream, capture, t);
}

// A stream that waits for a point of ours need not be told again, and brings what it waits for to whoever waits for it.
// Where all places to note it are taken, it is noted in that of the oldest.
status timelines::wait_for_ours(stream_id stream, capture_id capture, ticket t) {
    line *const waiting = find(stream, capture);
    if (waiting == nullptr) {
        return wait_in(stream, capture, t);
    }
    waited_for *const end = waiting->waits.data() + waiting->wait_count;
    waited_for *noted = waiting->waits.data();
    while (noted != end && noted->point.timeline != t.timeline) {
        ++noted;
    }
    if (noted != end && t.sequence <= noted->point.sequence) {
        return {};
    }
    EBB_TRY(wait_in(stream, capture, t));
    if (lines_[t.timeline].capture != capture) {
        return {};
    }
    if (noted == end && waiting->wait_count < waiting->waits.size()) {
        ++waiting->wait_count;
    } else if (noted == end) {
        noted = std::min_element(waiting->waits.data(), end,
                                 [](const waited_for &a, const waited_for &b) { return a.from < b.from; });
    }
    *noted = {t, waiting->issued + 1};
    return {};
}

status timelines::join_capture(capture_id capture, stream_id into) {
    for (size_t i = 0; i < lines_.size(); ++i) {
        if (lines_[i].capture == capture && lines_[i].owned) {
            ticket last;
            EBB_TRY(mark_line(static_cast<uint16_t>(i), last));
            EBB_TRY(wait_in(into, capture, last));
        }
    }
    return {};
}

void timelines::close_capture(capture_id capture) {
    for (size_t i = 0; i < lines_.size(); ++i) {
        line &l = lines_[i];
        if (l.capture == capture) {
            l.completed = l.issued;
            l.stream = k_calling_thread;  // nobody's
            l.capture = capture_id::none;
            l.owned = false;
            idle_lines_.push_back(static_cast<uint16_t>(i));
        }
    }
    std::erase(open_captures_, capture);
    std::erase_if(join_lines_, [capture](const joining_stream &j) { return j.capture == capture; });
}

// One that a capture has used is free again when the caller has ended that capture.
result<stream_id> timelines::stream_for_capture(stream_role role) {
    for (const stream_id stream : own_streams_) {
        const bool in_use =
            std::any_of(lines_.begin(), lines_.end(), [stream](const line &l) { return l.stream == stream; });
        const result<capture_id> capture = in_use ? capture_id::none : device_.capture_of(stream);
        if (!in_use && capture.ok() && capture.value() == capture_id::none) {
            return stream;
        }
    }
    result<stream_id> made = device_.create_stream(role);
    if (made.ok()) {
        own_streams_.push_back(made.value());
    }
    return made;
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

// On a stream of ours that waits for all of them and does nothing else.
status timelines::join(ticket_set &set, ticket t) {
    ticket_set left;
    for (const ticket member : set) {
        if (!known_done(member)) {
            EBB_CHECK(left.add(member));
        }
    }
    set = left;
    if (set.add(t)) {
        return {};
    }
    result<uint16_t> index = join_line(lines_[t.timeline].capture);
    if (!index.ok()) {
        return index.why();
    }
    for (const ticket member : set) {
        EBB_TRY(wait_line(index.value(), member));
    }
    EBB_TRY(wait_line(index.value(), t));
    ticket joined;
    EBB_TRY(mark_line(index.value(), joined));
    set.clear();
    EBB_CHECK(set.add(joined));
    return {};
}

result<uint16_t> timelines::join_line(capture_id capture) {
    for (const joining_stream &j : join_lines_) {
        if (j.capture == capture) {
            return j.line;
        }
    }
    result<stream_id> stream = stream_for_capture(stream_role::join);
    if (!stream.ok()) {
        return stream.why();
    }
    result<uint16_t> index = own(stream.value(), capture);
    if (index.ok()) {
        join_lines_.push_back({capture, index.value()});
    }
    return index;
}

status timelines::poll() {
    for (line &l : lines_) {
        EBB_TRY(poll(l));
    }
    return {};
}

// What is pinned, and what comes after it, is not forgotten: somebody blocks on that event outside of the lock.
status timelines::poll(line &l) {
    if (l.capture != capture_id::none) {
        return {};  // it is never done, and asking would end the capture
    }
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
    return l.pinned.empty() || l.capture != capture_id::none ? result<bool>(false)
                                                             : device_.event_done(l.event(t.sequence));
}

result<timelines::pinned_event> timelines::pin(ticket t) {
    if (known_done(t)) {
        return pinned_event{};
    }
    line &l = lines_[t.timeline];
    if (l.capture != capture_id::none) {
        return status(code::wrong_state, "it is part of a capture: nothing of it runs before its graph is launched");
    }
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
    if (l.capture != capture_id::none) {
        return {};  // it does not run: there is nothing to wait for
    }
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
