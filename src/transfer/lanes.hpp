// Copy lanes: streams of our own, one per direction unless more are asked for, each FIFO. A copy is cut into
// chunks, so that other streams' copies get their turn on the engine between two of them, and goes to its lane in
// the call that asks for it: what it must wait for is given as tickets, and what waits for it gets its ticket.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "base/ticket.hpp"
#include "device/device.hpp"
#include "transfer/timelines.hpp"

namespace ebb {

class lanes {
    struct lane {
        stream_id stream{};
        uint16_t timeline = 0;
        copy_direction direction{};
        std::vector<uint64_t> waited;  // by timeline: the latest point that this lane waits for already
        std::array<copy_piece, 32> gathered;
        uint32_t gathered_count = 0;

        [[nodiscard]] bool waits_for(ticket t) const noexcept {
            return t.timeline < waited.size() && t.sequence <= waited[t.timeline];
        }
    };

public:
    // Refuses nothing itself: counts and sizes were checked with the options.
    static result<std::unique_ptr<lanes>> make(device &dev, timelines &lines, uint32_t per_direction,
                                               uint64_t chunk_bytes);
    // The same on streams that take part in a capture. They fork from it at the first wait for a point of it.
    static result<std::unique_ptr<lanes>> make_in_capture(device &dev, timelines &lines, uint32_t per_direction,
                                                          uint64_t chunk_bytes, capture_id capture);
    ~lanes();
    lanes(const lanes &) = delete;
    lanes &operator=(const lanes &) = delete;

    // One transfer on one lane: waits and pieces in order, then its ticket.
    class transfer {
    public:
        status wait(ticket t) { return t.empty() || lane_->waits_for(t) ? status() : wait_newly(t); }
        status wait(const ticket_set &set);
        // Small pieces are gathered, for devices to which one call with many of them is cheaper, until flush().
        status copy(void *destination, const void *source, uint64_t size_bytes);
        status flush();
        status finish(ticket &t) const;
        [[nodiscard]] stream_id stream() const noexcept;

    private:
        friend class lanes;
        status wait_newly(ticket t);
        transfer(lanes &owner, uint32_t lane) : owner_(&owner), lane_(&owner.lanes_[lane]) {}
        lanes *owner_;
        lane *lane_;
    };

    // The next lane of that direction, in turn.
    [[nodiscard]] transfer begin(copy_direction direction) noexcept;

    // Whatever is issued from now on in that direction comes behind that point.
    status wait_all(copy_direction direction, ticket t);

    // Of copies that took no lane.
    void count(copy_direction direction, uint64_t size_bytes) noexcept {
        copied_bytes_[direction == copy_direction::d2h ? 0 : 1] += size_bytes;
    }
    [[nodiscard]] uint64_t copied_bytes(copy_direction direction) const noexcept {
        return copied_bytes_[direction == copy_direction::d2h ? 0 : 1];
    }

private:
    lanes(device &dev, timelines &lines, uint64_t chunk_bytes)
        : device_(dev), lines_(lines), chunk_bytes_(chunk_bytes) {}
    status add_lanes(uint32_t per_direction, capture_id capture);
    status add_lane(copy_direction direction, capture_id capture);

    device &device_;
    timelines &lines_;
    uint64_t chunk_bytes_;
    bool owns_streams_ = true;
    std::vector<lane> lanes_;  // d2h first
    uint32_t per_direction_ = 0;
    uint32_t turn_[2] = {0, 0};
    uint64_t copied_bytes_[2] = {0, 0};
};

inline lanes::transfer lanes::begin(copy_direction direction) noexcept {
    const uint32_t d = direction == copy_direction::d2h ? 0 : 1;
    const uint32_t turn = turn_[d];
    turn_[d] = turn + 1 == per_direction_ ? 0 : turn + 1;
    return {*this, d * per_direction_ + turn};
}

inline status lanes::transfer::wait(const ticket_set &set) {
    for (const ticket t : set) {
        EBB_TRY(wait(t));
    }
    return {};
}

inline status lanes::transfer::copy(void *destination, const void *source, uint64_t size_bytes) {
    constexpr uint64_t k_small_bytes = 1ULL << 20U;
    owner_->copied_bytes_[lane_->direction == copy_direction::d2h ? 0 : 1] += size_bytes;
    if (size_bytes <= std::min(k_small_bytes, owner_->chunk_bytes_)) {
        lane_->gathered[lane_->gathered_count++] = {destination, source, size_bytes};
        return lane_->gathered_count == lane_->gathered.size() ? flush() : status();
    }
    EBB_TRY(flush());
    auto *to = static_cast<std::byte *>(destination);
    const auto *from = static_cast<const std::byte *>(source);
    for (uint64_t done = 0; done < size_bytes;) {
        const uint64_t piece = std::min(owner_->chunk_bytes_, size_bytes - done);
        EBB_TRY(owner_->device_.copy(lane_->stream, lane_->direction, to + done, from + done, piece));
        done += piece;
    }
    return {};
}

inline status lanes::transfer::flush() {
    const uint32_t count = std::exchange(lane_->gathered_count, 0);
    const copy_piece &first = lane_->gathered[0];
    if (count == 1) {
        return owner_->device_.copy(lane_->stream, lane_->direction, first.destination, first.source, first.size_bytes);
    }
    return count == 0 ? status()
                      : owner_->device_.copy_pieces(lane_->stream, lane_->direction, lane_->gathered.data(), count);
}

inline status lanes::transfer::finish(ticket &t) const {
    return owner_->lines_.mark_line(lane_->timeline, t);
}

inline stream_id lanes::transfer::stream() const noexcept {
    return lane_->stream;
}

}  // namespace ebb
