#include "transfer/lanes.hpp"

#include <memory>

namespace ebb {

result<std::unique_ptr<lanes>> lanes::make(device &dev, timelines &lines, uint32_t per_direction,
                                           uint64_t chunk_bytes) {
    std::unique_ptr<lanes> made(new lanes(dev, lines, chunk_bytes));
    for (const copy_direction direction : {copy_direction::d2h, copy_direction::h2d}) {
        for (uint32_t i = 0; i < per_direction; ++i) {
            EBB_TRY(made->add_lane(direction));
        }
    }
    made->per_direction_ = per_direction;
    return made;
}

status lanes::add_lane(copy_direction direction) {
    result<stream_id> stream =
        device_.create_stream(direction == copy_direction::d2h ? stream_role::d2h : stream_role::h2d);
    if (!stream.ok()) {
        return stream.why();
    }
    lane fresh;
    fresh.stream = stream.value();
    fresh.direction = direction;
    result<uint16_t> timeline = lines_.own(stream.value());
    if (!timeline.ok()) {
        return timeline.why();
    }
    fresh.timeline = timeline.value();
    lanes_.push_back(std::move(fresh));
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
        static_cast<void>(device_.destroy_stream(l.stream));
    }
}

}  // namespace ebb
