#include "transfer/lanes.hpp"

#include <algorithm>
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

lanes::~lanes() {
    for (const lane &l : lanes_) {
        static_cast<void>(device_.destroy_stream(l.stream));
    }
}

lanes::transfer lanes::begin(copy_direction direction) noexcept {
    const uint32_t d = direction == copy_direction::d2h ? 0 : 1;
    const uint32_t turn = turn_[d];
    turn_[d] = turn + 1 == per_direction_ ? 0 : turn + 1;
    return {*this, d * per_direction_ + turn};
}

// A lane is a stream of ours that lives as long as we do, so it can remember what it waits for already.
status lanes::transfer::wait(ticket t) {
    lane &l = owner_->lanes_[lane_];
    if (t.empty()) {
        return {};
    }
    if (l.waited.size() <= t.timeline) {
        l.waited.resize(static_cast<size_t>(t.timeline) + 1, 0);
    }
    if (t.sequence <= l.waited[t.timeline]) {
        return {};
    }
    EBB_TRY(owner_->lines_.wait(l.stream, t));
    l.waited[t.timeline] = t.sequence;
    return {};
}

status lanes::transfer::wait(const ticket_set &set) {
    for (const ticket t : set) {
        EBB_TRY(wait(t));
    }
    return {};
}

status lanes::transfer::copy(void *destination, const void *source, uint64_t size_bytes) {
    const lane &l = owner_->lanes_[lane_];
    auto *to = static_cast<std::byte *>(destination);
    const auto *from = static_cast<const std::byte *>(source);
    for (uint64_t done = 0; done < size_bytes;) {
        const uint64_t piece = std::min(owner_->chunk_bytes_, size_bytes - done);
        EBB_TRY(owner_->device_.copy(l.stream, l.direction, to + done, from + done, piece));
        done += piece;
    }
    owner_->copied_bytes_[l.direction == copy_direction::d2h ? 0 : 1] += size_bytes;
    return {};
}

result<ticket> lanes::transfer::finish() const {
    return owner_->lines_.mark(stream());
}

stream_id lanes::transfer::stream() const noexcept {
    return owner_->lanes_[lane_].stream;
}

}  // namespace ebb
