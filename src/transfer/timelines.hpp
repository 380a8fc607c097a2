// Points on streams. Each stream that orders something (a copy lane, a caller's stream) is a timeline: a
// counter and a ring of events. mark() records the next event and gives its ticket; wait() makes a stream wait
// for a ticket. Completed points are forgotten from the front of the ring, so a ring holds what is in flight.
//
// Looking at completion (poll) only recycles events and skips waits that would be over at once: it never
// changes what is ordered behind what.
//
// A stream that is part of a capture has another timeline there. Its points order work of the same capture alone and
// are never done; when the capture is closed they are all behind whatever comes later, by the order in which the
// caller launches graphs. CUDA gives up a capture for a wait that crosses its border, so none is ever enqueued: a
// point outside can be had from inside once it is done, and the other way round not at all.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/status.hpp"
#include "base/ticket.hpp"
#include "device/device.hpp"

namespace ebb {

class timelines {
public:
    explicit timelines(device &dev) : device_(dev), captures_(dev.info().captures), lines_(1) {}
    ~timelines();  // destroys our events and streams; every stream is idle by then
    timelines(const timelines &) = delete;
    timelines &operator=(const timelines &) = delete;

    // The timeline of a stream, made when it is first seen. Not for the calling thread.
    result<uint16_t> of(stream_id stream);

    // The point after everything on the stream so far. The calling thread has none: an empty ticket, since
    // what it did is done.
    status mark(stream_id stream, ticket &t);
    // For streams of our own: a timeline that is never given to another stream, in a capture until that is closed;
    // marks and waits on it without a look-up.
    result<uint16_t> own(stream_id stream, capture_id capture = capture_id::none);
    status mark_line(uint16_t index, ticket &t);
    status wait_line(uint16_t index, ticket t);

    // Makes the stream wait. Nothing is enqueued for an empty ticket, one known to be done, or one of that very stream.
    status wait(stream_id stream, ticket t);
    status wait(stream_id stream, const ticket_set &set);

    // Which capture the stream is part of. Asked of the device once for each call of ours.
    result<capture_id> capture_of(stream_id stream) {
        return captures_ && stream != k_calling_thread ? ask_capture_of(stream) : result<capture_id>(capture_id::none);
    }
    void begin_call() noexcept { known_count_ = 0; }
    void open_capture(capture_id capture) { open_captures_.push_back(capture); }
    // Its points count as done. `into`, a stream of the capture, comes behind all of our own streams in it before.
    status join_capture(capture_id capture, stream_id into);
    void close_capture(capture_id capture);
    // A stream of our own that is in no capture now; it lives as long as this object.
    result<stream_id> stream_for_capture(stream_role role);
    // Whether work of that capture, or outside of all, can be made to come behind the point.
    result<bool> reachable(ticket t, capture_id from);

    // Adds to the set; one that is full of other timelines is folded into one point of a stream of ours that
    // waits for all of them and does nothing else.
    status add(ticket_set &set, ticket t);

    // Whether it is the stream that was marked last, of those that are not ours.
    [[nodiscard]] bool used_last(stream_id stream) const noexcept { return lines_[last_].stream == stream; }

    [[nodiscard]] bool known_done(ticket t) const noexcept {
        return t.empty() || t.sequence <= lines_[t.timeline].completed;
    }
    status poll();
    // Polls the timeline of t alone.
    result<bool> done(ticket t);

    // Points of our own streams that come before t, since its stream was made to wait for them before: whoever waits
    // for t is behind them, too.
    template <class Use>
    void each_before(ticket t, const Use &use) const;

    // An event to block on outside of any lock: pinned so that it is not reused until unpin.
    struct pinned_event {
        event_id event{};
        ticket point;
        bool needed = false;
    };
    result<pinned_event> pin(ticket t);
    void unpin(const pinned_event &p) noexcept;
    // Blocks the host. For close and the growth at the end of the recorded step.
    status synchronize(ticket t);
    status synchronize_all();

private:
    // The latest point of one of our own streams that a stream waits for, and the first of its points behind that.
    struct waited_for {
        ticket point;
        uint64_t from = 0;
    };

    struct line {
        stream_id stream = k_calling_thread;  // nobody's: it has no points
        capture_id capture = capture_id::none;
        uint64_t issued = 0;         // sequence of the last point
        uint64_t completed = 0;      // all points up to here are known to be done
        std::vector<event_id> ring;  // a power of two of them; the event of point s is event(s)
        bool owned = false;          // by a stream of ours: not for others even when idle
        uint32_t wait_count = 0;
        std::array<waited_for, 4> waits;
        std::vector<uint64_t> pinned;  // points that threads block on

        [[nodiscard]] event_id &event(uint64_t sequence) noexcept { return ring[sequence & (ring.size() - 1)]; }
    };

    struct known_stream {
        stream_id stream{};
        capture_id capture = capture_id::none;
    };
    static constexpr uint32_t k_most_known = 8;

    result<capture_id> ask_capture_of(stream_id stream);
    result<uint16_t> of(stream_id stream, capture_id capture);
    result<uint16_t> bind(stream_id stream, capture_id capture);
    bool reuse_idle_line(uint16_t &index);
    [[nodiscard]] bool is_open(capture_id capture) const noexcept;
    status mark_other(stream_id stream, ticket &t);
    status wait_in(stream_id stream, capture_id capture, ticket t);
    [[nodiscard]] line *find(stream_id stream, capture_id capture) noexcept;
    status wait_not_done(stream_id stream, ticket t);
    status wait_for_ours(stream_id stream, capture_id capture, ticket t);
    status wait_across(capture_id capture, ticket t);
    [[nodiscard]] static ticket point(uint16_t index, uint64_t sequence) noexcept {
        ticket t;
        t.timeline = index;
        t.sequence = sequence & ((uint64_t{1} << 48U) - 1);
        return t;
    }
    status poll(line &l);
    status make_place(line &l);
    status grow(line &l);
    status join(ticket_set &set, ticket t);
    result<uint16_t> join_line(capture_id capture);

    device &device_;
    bool captures_;
    std::vector<line> lines_;                           // at least one, so that there is one used last
    std::unordered_map<uint64_t, uint16_t> by_stream_;  // outside of captures
    uint16_t last_ = 0;
    struct joining_stream {
        capture_id capture = capture_id::none;
        uint16_t line = 0;
    };
    std::vector<joining_stream> join_lines_;  // where more points than a set holds are folded into one
    std::vector<stream_id> own_streams_;
    std::vector<capture_id> open_captures_;
    std::vector<uint16_t> idle_lines_;  // of captures that are closed
    known_stream known_[k_most_known];
    uint32_t known_count_ = 0;
};

inline status timelines::mark(stream_id stream, ticket &t) {
    if (stream == k_calling_thread) {
        t = {};
        return {};
    }
    return !captures_ && used_last(stream) ? mark_line(last_, t) : mark_other(stream, t);
}

inline status timelines::mark_line(uint16_t index, ticket &t) {
    line &l = lines_[index];
    if (l.issued - l.completed == l.ring.size()) {
        EBB_TRY(make_place(l));
    }
    const uint64_t sequence = l.issued + 1;
    EBB_TRY(device_.record_event(l.event(sequence), l.stream));
    l.issued = sequence;
    t = point(index, sequence);
    return {};
}

inline status timelines::wait(stream_id stream, ticket t) {
    return stream == k_calling_thread || known_done(t) ? status() : wait_not_done(stream, t);
}

// `capture` is the stream's.
inline status timelines::wait_in(stream_id stream, capture_id capture, ticket t) {
    line &l = lines_[t.timeline];
    if (l.capture != capture) {
        return wait_across(capture, t);
    }
    return l.stream == stream ? status() : device_.wait_event(stream, l.event(t.sequence));
}

inline status timelines::wait_line(uint16_t index, ticket t) {
    if (known_done(t)) {
        return {};
    }
    return wait_in(lines_[index].stream, lines_[index].capture, t);
}

template <class Use>
void timelines::each_before(ticket t, const Use &use) const {
    const line &l = lines_[t.timeline];
    for (uint32_t k = 0; k < l.wait_count; ++k) {
        if (l.waits[k].from <= t.sequence) {
            use(l.waits[k].point);
        }
    }
}

inline status timelines::wait(stream_id stream, const ticket_set &set) {
    for (const ticket t : set) {
        EBB_TRY(wait(stream, t));
    }
    return {};
}

inline status timelines::add(ticket_set &set, ticket t) {
    return set.add(t) ? status() : join(set, t);
}

}  // namespace ebb
