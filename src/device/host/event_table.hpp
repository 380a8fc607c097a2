// The events of a host device: which marker each was last recorded as.
#pragma once

#include <deque>
#include <mutex>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "device/host/marker.hpp"

namespace ebb {

class event_table {
public:
    explicit event_table(marker_pool &markers) : markers_(markers) {}

    result<event_id> create(event_kind kind);
    // Waits that are pending keep their markers.
    status destroy(event_id event);

    // A fresh marker, held twice: for the stream that will pass it and for the event.
    result<marker *> new_marker(event_id event);
    // Makes it the event's latest recording; takes over the event's hold, also on failure.
    status set_latest(event_id event, marker *recorded);
    // The latest recording, held for the caller; null when there is none.
    result<marker *> latest(event_id event);

    result<bool> done(event_id event);
    result<uint64_t> elapsed_ns(event_id start, event_id end);

private:
    struct slot {
        uint64_t number = 0;  // 0: free
        event_kind kind = event_kind::plain;
        marker *latest = nullptr;
    };
    slot *find(event_id event);
    result<uint64_t> time_of(event_id event, const char *which);

    marker_pool &markers_;
    std::mutex mutex_;
    std::deque<slot> slots_;
    std::vector<uint32_t> free_slots_;
};

}  // namespace ebb
