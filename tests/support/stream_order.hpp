// What a trace of device calls says about order: which call can only run when another has. Streams run in order, and
// a wait for an event brings in everything before its last record. This finds a missing wait each time, also where the
// bytes came out right by luck.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "device/trace/trace_device.hpp"

namespace ebb::test {

class stream_order {
public:
    explicit stream_order(std::vector<trace_entry> entries) : entries_(std::move(entries)) {
        std::map<uint32_t, clock> streams;
        std::map<uint32_t, clock> events;
        for (size_t i = 0; i < entries_.size(); ++i) {
            const trace_entry &e = entries_[i];
            if (e.stream != 0 && e.result == code::ok) {
                clock &now = streams[e.stream];
                if (e.kind == call_kind::wait_event) {
                    for (const auto &[stream, passed] : events[e.event]) {
                        now[stream] = std::max(now[stream], passed);
                    }
                }
                now[e.stream] = i + 1;
                if (e.kind == call_kind::record_event) {
                    events[e.event] = now;
                }
                clocks_.push_back(now);
            } else {
                clocks_.emplace_back();
            }
        }
    }

    [[nodiscard]] bool behind(size_t later, size_t earlier) const {
        const auto found = clocks_[later].find(entries_[earlier].stream);
        return found != clocks_[later].end() && found->second > earlier;
    }

    // Positions of the copies in that direction.
    [[nodiscard]] std::vector<size_t> copies(copy_direction direction) const {
        std::vector<size_t> found;
        for (size_t i = 0; i < entries_.size(); ++i) {
            if (entries_[i].kind == call_kind::copy && entries_[i].direction == direction) {
                found.push_back(i);
            }
        }
        return found;
    }
    [[nodiscard]] std::vector<size_t> records() const {
        std::vector<size_t> found;
        for (size_t i = 0; i < entries_.size(); ++i) {
            if (entries_[i].kind == call_kind::record_event) {
                found.push_back(i);
            }
        }
        return found;
    }
    [[nodiscard]] const trace_entry &operator[](size_t i) const { return entries_[i]; }
    [[nodiscard]] size_t size() const { return entries_.size(); }

private:
    using clock = std::map<uint32_t, size_t>;  // by stream: how far it has run, at least
    std::vector<trace_entry> entries_;
    std::vector<clock> clocks_;
};

}  // namespace ebb::test
