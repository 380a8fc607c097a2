// A device on which a test says how far each stream has come, and which writes down what it was asked.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "device/null/null_device.hpp"

namespace ebb {

class stepped_device final : public null_device {
public:
    struct wait {
        stream_id stream;
        stream_id on;       // the stream that the event was recorded on
        uint64_t recorded;  // which record of that stream, from 1
        bool operator==(const wait &) const = default;
    };
    struct piece {
        stream_id stream;
        copy_direction direction;
        uint64_t offset_bytes;  // of the source
        uint64_t size_bytes;
        bool operator==(const piece &) const = default;
    };

    std::vector<wait> waits;
    std::vector<piece> pieces;
    std::vector<stream_id> synchronized;
    bool refuse_records = false;
    bool refuse_waits = false;

    // Everything up to that record of the stream is done.
    void reach(stream_id stream, uint64_t recorded) { reached_[stream] = recorded; }
    [[nodiscard]] uint64_t recorded(stream_id stream) { return recorded_[stream]; }

    status record_event(event_id event, stream_id stream) override {
        if (refuse_records) {
            return {code::device_error, "record refused"};
        }
        events_[event] = {stream, ++recorded_[stream]};
        return null_device::record_event(event, stream);
    }
    status wait_event(stream_id stream, event_id event) override {
        if (refuse_waits) {
            return {code::device_error, "wait refused"};
        }
        const auto [on, number] = events_.at(event);
        waits.push_back({stream, on, number});
        return {};
    }
    result<bool> event_done(event_id event) override {
        static_cast<void>(null_device::event_done(event));
        const auto [on, number] = events_.at(event);
        return number <= reached_[on];
    }
    status synchronize_event(event_id event) override {
        const auto [on, number] = events_.at(event);
        synchronized.push_back(on);
        reached_[on] = std::max(reached_[on], number);
        return {};
    }
    status copy(stream_id stream, copy_direction direction, void * /*destination*/, const void *source,
                uint64_t size_bytes) override {
        pieces.push_back({stream, direction, reinterpret_cast<uintptr_t>(source), size_bytes});
        return {};
    }

private:
    std::map<event_id, std::pair<stream_id, uint64_t>> events_;
    std::map<stream_id, uint64_t> recorded_, reached_;
};

}  // namespace ebb
