#include "schedule/slot_replay.hpp"

#include <algorithm>

namespace ebb {

void slot_replay::begin(uint64_t staging_bytes) {
    sub_ = sub_allocator(staging::k_alignment);
    freed_at_ns_.assign(1, 0);  // sequence 0 is no point
    const uint64_t usable_bytes = staging_bytes / staging::k_alignment * staging::k_alignment;
    if (usable_bytes != 0) {
        // Never touched: only its cuts are of interest.
        auto *nowhere = reinterpret_cast<std::byte *>(uintptr_t{1} << 40U);  // NOLINT(performance-no-int-to-ptr)
        sub_.add_region(nowhere, std::min(usable_bytes, sub_.max_region_bytes()));
    }
}

std::optional<slot_replay::slot> slot_replay::allocate(uint64_t size_bytes) {
    waits_.clear();
    const std::optional<sub_allocator::piece> piece =
        sub_.allocate(staging::slot_footprint_bytes(size_bytes, nullptr), fit_rule::oldest, waits_);
    if (!piece.has_value()) {
        return std::nullopt;
    }
    slot made;
    made.segment = piece->segment;
    for (const ticket t : waits_) {
        made.free_at_ns = std::max(made.free_at_ns, freed_at_ns_[t.sequence]);
    }
    return made;
}

void slot_replay::free(sub_allocator::segment_id segment, double at_ns) {
    ticket_set behind;
    ticket point;
    point.sequence = freed_at_ns_.size() & ((uint64_t{1} << 48U) - 1);
    static_cast<void>(behind.add(point));
    freed_at_ns_.push_back(at_ns);
    sub_.free(segment, behind);
}

}  // namespace ebb
