// Points on streams. Each stream that orders something (a copy lane, a caller's stream) is a timeline: a
// counter and a ring of events. mark() records the next event and gives its ticket; wait() makes a stream wait
// for a ticket. Completed points are forgotten from the front of the ring, so a ring holds what is in flight.
//
// Looking at completion (poll) only recycles events and skips waits that would be over at once: it never
// changes what is ordered behind what.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/status.hpp"
#include "base/ticket.hpp"
#include "device/device.hpp"

namespace ebb {

class timelines {
public:
    explicit timelines(device &dev) : device_(dev) {}
    ~timelines();  // destroys our events and the join stream; every stream is idle by then
    timelines(const timelines &) = delete;
    timelines &operator=(const timelines &) = delete;

    // The timeline of a stream, made when it is first seen. Not for the calling thread.
    result<uint16_t> of(stream_id stream);

    // The point after everything on the stream so far. The calling thread has none: an empty ticket, since
    // what it did is done.
    result<ticket> mark(stream_id stream);
    // For streams of our own: a timeline that is never given to another stream, and marks on it without a look-up.
    result<uint16_t> own(stream_id stream);
    result<ticket> mark_line(uint16_t index);

    // Makes the stream wait. Nothing is enqueued for an empty ticket, one known to be done, or one of that very stream.
    status wait(stream_id stream, ticket t);
    status wait(stream_id stream, const ticket_set &set);

    // Adds to the set; one that is full of other timelines is folded into one point of a stream of ours that
    // waits for all of them and does nothing else.
    status add(ticket_set &set, ticket t);

    [[nodiscard]] bool known_done(ticket t) const noexcept;
    [[nodiscard]] bool known_done(const ticket_set &set) const noexcept;
    status poll();
    // Polls the timeline of t alone.
    result<bool> done(ticket t);

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
    struct line {
        stream_id stream{};
        uint64_t issued = 0;           // sequence of the last point
        uint64_t completed = 0;        // all points up to here are known to be done
        bool owned = false;            // by a stream of ours: not for others even when idle
        std::vector<uint64_t> pinned;  // points that threads block on
        std::vector<event_id> ring;    // the event of point s is ring[s % size]
    };

    result<uint16_t> bind(stream_id stream);
    [[nodiscard]] static ticket point(uint16_t index, uint64_t sequence) noexcept;
    status poll(line &l);
    status grow(line &l);
    status ensure_join_stream();

    device &device_;
    std::vector<line> lines_;
    std::unordered_map<uint64_t, uint16_t> by_stream_;
    uint16_t last_ = 0;
    bool has_join_stream_ = false;
    stream_id join_stream_{};
};

}  // namespace ebb
