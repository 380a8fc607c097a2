#include "transfer/lanes.hpp"

#include <memory>

namespace ebb {

result<std::unique_ptr<lanes>> lanes::make(device &dev, timelines &lines, uint32_t per_direction,
                                           uint64_t chunk_bytes) {
    std::unique_ptr<lanes> made(new lanes(dev, lines, chunk_bytes));
    EBB_TRY(made->add_lanes(per_direction, capture_id::none));
    return made;
}

result<std::unique_ptr<lanes>> lanes::make_in_capture(device &dev, timelines &lines, uint32_t per_direction,
                                                      uint64_t chunk_bytes, capture_id capture) {
    std::unique_ptr<lanes> made(new lanes(dev, lines, chunk_bytes));
    made->owns_streams_ = false;
    EBB_TRY(made->add_lanes(per_direction, capture));
    return made;
}

status lanes::add_lanes(uint32_t per_direction, capture_id capture) {
    for (const copy_direction direction : {copy_direction::d2h, copy_direction::h2d}) {
        for (uint32_t i = 0; i < per_direction; ++i) {
            EBB_TRY(add_lane(direction, capture));
        }
    }
    per_direction_ = per_direction;
    return {};
}

status lanes::add_lane(copy_direction direction, capture_id capture) {
    const stream_role role = direction == copy_direction::d2h ? stream_role::d2h : stream_role::h2d;
    result<stream_id> stream = owns_streams_ ? device_.create_stream(role) : lines_.stream_for_capture(role);
    if (!stream.ok()) {
        return stream.why();
    }
    lane fresh;
    fresh.stream = stream.value();
    fresh.direction = direction;
    result<uint16_t> timeline = lines_.own(stream.value(), capture);
    if (!timeline.ok()) {
        return timeline.why();
    }
    fresh.timeline = timeline.value();
    lanes_.push_back(std::move(fresh));
    return {};
}

// A lane is a stream of ours that lives as long as we do, so it can remember what it waits for already.
status lanes::transfer::wait_newly(ticket t) {
    std::vector<uint64_t> &waited = lane_->waited;
    if (waited.size() <= t.timeline) {
        waited.resize(static_cast<size_t>(t.timeline) + 1, 0);
    }
    EBB_TRY(owner_->lines_.wait_line(lane_->timeline, t));
    waited[t.timeline] = t.sequence;
    owner_->lines_.each_before(t, [&waited](ticket before) {
        if (before.timeline < waited.size()) {
            waited[before.timeline] = std::max(waited[before.timeline], uint64_t{before.sequence});
        }
    });
    return {};
}

status lanes::wait_all(copy_direction direction, ticket t) {
    for (uint32_t i = 0; i < lanes_.size(); ++i) {
        if (lanes_[i].direction == direction) {
            EBB_TRY(transfer(*this, i).wait(t));
        }
    }
    return {};
}

lanes::~lanes() {
    for (const lane &l : lanes_) {
        if (owns_streams_) {
            static_cast<void>(device_.destroy_stream(l.stream));
        }
    }
}

}  // namespace ebb
