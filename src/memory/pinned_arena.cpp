#include "memory/pinned_arena.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/check.hpp"

namespace ebb {
namespace {

constexpr uint64_t k_page_bytes = 4096;  // alignment of blocks and unit of registrations
constexpr uint32_t k_max_extents = 16;
constexpr uint64_t k_min_extent_bytes = 256ULL << 10U;  // below this a copy is mostly start-up cost
constexpr uint64_t k_step_share = 16;                   // a growth step is a sixteenth of what is mapped
constexpr uint64_t k_aside_share = 12;                  // free bytes left aside by a growth: at most a twelfth
constexpr uint32_t k_max_skips = 4096;

uint64_t page_down(uint64_t bytes) {
    return bytes & ~(k_page_bytes - 1);
}

uint64_t page_up(uint64_t bytes) {
    constexpr uint64_t k_most_bytes = std::numeric_limits<uint64_t>::max() - (k_page_bytes - 1);
    return page_down(std::min(bytes, k_most_bytes) + (k_page_bytes - 1));
}

}  // namespace

pinned_arena::pinned_arena(device &dev, const pinned_arena_options &options)
    : device_(dev),
      max_slab_bytes_(options.max_slab_bytes != 0 ? options.max_slab_bytes : dev.info().slab_bytes),
      sub_(k_page_bytes) {
    max_slab_bytes_ = std::clamp(page_down(max_slab_bytes_), k_page_bytes, sub_.max_region_bytes());
    statistics_.cap_bytes = options.cap_bytes != 0 ? options.cap_bytes : dev.host_room_bytes() / options.sharers;
}

pinned_arena::~pinned_arena() {
    static_cast<void>(unmap_trimmed());
    for (const slab &s : slabs_) {
        if (s.size_bytes != 0) {
            static_cast<void>(device_.unmap_host(s.data, s.size_bytes));
        }
    }
}

// ---- Blocks --------------------------------------------------------------------------------------------------

void pinned_arena::add_unused_block() {
    EBB_CHECK(blocks_.size() < k_none);
    blocks_.emplace_back();
    unused_blocks_ = static_cast<uint32_t>(blocks_.size() - 1);
}

// Before a block's memory is taken: its record may want heap memory.
inline void pinned_arena::keep_unused_block() {
    if (unused_blocks_ == k_none) {
        add_unused_block();
    }
}

inline pinned_arena::block_id pinned_arena::new_block(uint64_t size_bytes, sub_allocator::segment_id first) noexcept {
    const block_id id = unused_blocks_;
    unused_blocks_ = blocks_[id].more;
    blocks_[id] = {size_bytes, first, k_none, 1};
    ++statistics_.block_count;
    ++statistics_.extent_count;
    statistics_.requested_bytes += size_bytes;
    statistics_.requested_peak_bytes = std::max(statistics_.requested_peak_bytes, statistics_.requested_bytes);
    if (statistics_.mapped_bytes == statistics_.mapped_peak_bytes) {
        statistics_.requested_at_mapped_peak_bytes =
            std::max(statistics_.requested_at_mapped_peak_bytes, statistics_.requested_bytes);
    }
    return id;
}

pinned_arena::block_id pinned_arena::allocate_block(uint64_t size_bytes, std::vector<ticket> &waits) {
    EBB_CHECK(size_bytes > 0);
    keep_unused_block();
    const uint64_t rounded_bytes = page_up(size_bytes);
    if (const auto piece = sub_.allocate(rounded_bytes, fit_rule::best, waits)) {
        return new_block(size_bytes, piece->segment);
    }
    return allocate_with_growth(size_bytes, rounded_bytes, waits);
}

pinned_arena::block_id pinned_arena::allocate_with_growth(uint64_t size_bytes, uint64_t rounded_bytes,
                                                          std::vector<ticket> &waits) {
    if (!make_room(rounded_bytes)) {
        refusal_.wanted_bytes = size_bytes;
        refusal_.held_bytes = sub_.total_bytes() - sub_.free_bytes();
        return k_none;
    }
    block_id id = k_none;
    const size_t waits_before = waits.size();
    try {
        take_extents(id, size_bytes, rounded_bytes, waits);
    } catch (...) {
        give_back(id, waits, waits_before);
        throw;
    }
    return id;
}

void pinned_arena::take_extents(block_id &id, uint64_t size_bytes, uint64_t rounded_bytes, std::vector<ticket> &waits) {
    uint32_t last = k_none;
    for (uint64_t left_bytes = rounded_bytes; left_bytes > 0;) {
        keep_unused_extent();
        auto piece = sub_.allocate(left_bytes, fit_rule::best, waits);
        if (!piece) {
            piece = sub_.allocate_largest(left_bytes, waits);
        }
        EBB_CHECK(piece.has_value());  // make_room saw to it
        left_bytes -= piece->size_bytes;
        if (id == k_none) {
            id = new_block(size_bytes, piece->segment);
        } else {
            last = add_extent(id, last, piece->segment);
        }
    }
}

// The heap had nothing left in the middle of it. Its memory is free behind who had it before, as the tickets say; where
// those are more than a set holds, it stays taken.
void pinned_arena::give_back(block_id id, const std::vector<ticket> &waits, size_t first_wait) noexcept {
    ticket_set behind;
    bool known = id != k_none;
    for (size_t w = first_wait; w < waits.size(); ++w) {
        known = known && behind.add(waits[w]);
    }
    if (known) {
        free(id, behind);
    }
}

void pinned_arena::keep_unused_extent() {
    if (unused_extents_ == k_none) {
        extents_.emplace_back();
        unused_extents_ = static_cast<uint32_t>(extents_.size() - 1);
    }
}

// Appends to the block's list behind `last` (k_none: right behind the record). Returns the new end of the list.
uint32_t pinned_arena::add_extent(block_id id, uint32_t last, sub_allocator::segment_id segment) noexcept {
    const uint32_t index = unused_extents_;
    unused_extents_ = extents_[index].next;
    extents_[index] = {segment, k_none};
    (last == k_none ? blocks_[id].more : extents_[last].next) = index;
    ++blocks_[id].extent_count;
    ++statistics_.extent_count;
    return index;
}

void pinned_arena::free(block_id id, const ticket_set &last_uses) {
    const block &record = live(id);
    statistics_.requested_bytes -= record.size_bytes;
    statistics_.extent_count -= record.extent_count;
    --statistics_.block_count;
    sub_.free(record.first, last_uses);
    for (uint32_t more = record.more; more != k_none;) {
        extent_node &node = extents_[more];
        sub_.free(node.segment, last_uses);
        const uint32_t next = node.next;
        node.next = unused_extents_;
        unused_extents_ = more;
        more = next;
    }
    blocks_[id].size_bytes = 0;
    blocks_[id].more = unused_blocks_;
    unused_blocks_ = id;
}

const pinned_arena::block &pinned_arena::live(block_id id) const noexcept {
    EBB_CHECK(id < blocks_.size() && blocks_[id].size_bytes != 0);
    return blocks_[id];
}

uint64_t pinned_arena::block_bytes(block_id id) const noexcept {
    return live(id).size_bytes;
}

uint32_t pinned_arena::extent_count(block_id id) const noexcept {
    return live(id).extent_count;
}

// ---- Growth --------------------------------------------------------------------------------------------------

// Free bytes that a growth may count on: none, what a few large ranges hold, or all, in however many extents.
uint64_t pinned_arena::usable_bytes(free_use use, uint64_t enough_bytes) const noexcept {
    switch (use) {
        case free_use::none:
            return 0;
        case free_use::large:
            return sub_.largest_pieces_bytes(k_max_extents - 1, k_min_extent_bytes, enough_bytes);
        case free_use::all:
            break;
    }
    return sub_.free_bytes();
}

// Sees to it that free bytes suffice, by growing or by accepting extents: more and more of the free bytes are used, and
// each time a growth step is tried before no byte more than needed. Everything is computed anew each time, since
// a growth refused half-way leaves what it had mapped.
bool pinned_arena::make_room(uint64_t rounded_bytes) {
    if (sub_.free_bytes() >= rounded_bytes &&
        sub_.largest_pieces_bytes(k_max_extents, k_min_extent_bytes, rounded_bytes) >= rounded_bytes) {
        return true;
    }
    uint64_t refused_bytes = std::numeric_limits<uint64_t>::max();
    for (const free_use use : {free_use::none, free_use::large, free_use::all}) {
        for (const bool with_step : {true, false}) {
            const uint64_t needed_bytes = rounded_bytes - std::min(rounded_bytes, usable_bytes(use, rounded_bytes));
            if (needed_bytes == 0) {
                return true;
            }
            const uint64_t step_bytes = std::min(max_slab_bytes_, page_down(sub_.total_bytes() / k_step_share));
            const uint64_t growth_bytes = with_step ? std::max(needed_bytes, step_bytes) : needed_bytes;
            const uint64_t aside_bytes = sub_.free_bytes() + growth_bytes - rounded_bytes;
            const bool tight = aside_bytes <= (sub_.total_bytes() + growth_bytes) / k_aside_share;
            if ((!tight && use != free_use::all) || growth_bytes >= refused_bytes) {
                continue;
            }
            if (grow(growth_bytes)) {
                return true;
            }
            refused_bytes = growth_bytes;
        }
    }
    return sub_.free_bytes() >= rounded_bytes;
}

// One slab if the device lets us, so that a large block has one extent; otherwise slabs of the largest growth
// step. What was mapped before a refusal stays: the next request may use it.
bool pinned_arena::grow(uint64_t size_bytes) {
    if (!growth_allowed(size_bytes)) {
        return false;
    }
    if (map_slab(size_bytes)) {
        return true;
    }
    return size_bytes > max_slab_bytes_ && map_slabs(size_bytes);
}

bool pinned_arena::map_slabs(uint64_t size_bytes) {
    for (uint64_t left_bytes = size_bytes; left_bytes > 0;) {
        const uint64_t slab_bytes = std::min(left_bytes, max_slab_bytes_);
        if (!map_slab(slab_bytes)) {
            return false;
        }
        left_bytes -= slab_bytes;
    }
    return true;
}

// The cap (or what one growth can bring, where that is less), then what was refused lately, then what the host has room
// for.
bool pinned_arena::growth_allowed(uint64_t size_bytes) {
    const uint64_t mapped_bytes = statistics_.mapped_bytes;
    if (frozen_) {
        refusal_.kind = refusal_kind::frozen;
        refusal_.cap_bytes = mapped_bytes;
        return false;
    }
    const uint64_t cap_bytes = std::min(statistics_.cap_bytes, mapped_bytes + sub_.max_region_bytes());
    if (mapped_bytes > cap_bytes || size_bytes > cap_bytes - mapped_bytes) {
        refusal_.kind = refusal_kind::cap;
        refusal_.cap_bytes = cap_bytes;
        return false;
    }
    if (size_bytes >= backoff_.refused_bytes && backoff_.skips_left > 0) {
        --backoff_.skips_left;
        refusal_.kind = backoff_.kind;
        refusal_.cap_bytes = backoff_.limit_bytes;
        return false;
    }
    const uint64_t room_bytes = device_.host_room_bytes();
    if (size_bytes > room_bytes) {
        note_refused_growth(size_bytes, refusal_kind::cap, std::min(cap_bytes, mapped_bytes + room_bytes));
        return false;
    }
    return true;
}

void pinned_arena::refuse_frozen(uint64_t wanted_bytes) noexcept {
    refusal_ = {refusal_kind::frozen, wanted_bytes, sub_.total_bytes() - sub_.free_bytes(), statistics_.mapped_bytes};
}

bool pinned_arena::map_slab(uint64_t size_bytes) {
    const uint32_t region = sub_.prepare_region();
    if (region >= slabs_.size()) {
        slabs_.resize(region + 1);
    }
    result<void *> mapped = device_.map_host(size_bytes);
    if (!mapped.ok()) {
        pinning_status_ = mapped.why();
        note_refused_growth(size_bytes, refusal_kind::pinning, statistics_.cap_bytes);
        return false;
    }
    slabs_[region] = {static_cast<std::byte *>(mapped.value()), size_bytes};
    sub_.add_region(slabs_[region].data, size_bytes);
    ++statistics_.slab_count;
    statistics_.mapped_bytes += size_bytes;
    if (statistics_.mapped_bytes > statistics_.mapped_peak_bytes) {
        statistics_.mapped_peak_bytes = statistics_.mapped_bytes;
        statistics_.requested_at_mapped_peak_bytes = statistics_.requested_bytes;
    }
    if (size_bytes >= backoff_.refused_bytes) {
        backoff_ = {};
    }
    return true;
}

void pinned_arena::note_refused_growth(uint64_t size_bytes, refusal_kind kind, uint64_t limit_bytes) {
    backoff_.refused_bytes = size_bytes;
    backoff_.skips_left = backoff_.next_skips;
    backoff_.next_skips = std::min(backoff_.next_skips * 2, k_max_skips);
    backoff_.kind = kind;
    backoff_.limit_bytes = limit_bytes;
    refusal_.kind = kind;
    refusal_.cap_bytes = limit_bytes;
}

status pinned_arena::growth_failure(uint64_t wanted_bytes) const {
    if (refusal_.kind == refusal_kind::pinning) {
        return {code::out_of_host_memory,
                fmt::format("pinned host memory: {} bytes wanted, {} mapped, pinning refused: {}", wanted_bytes,
                            statistics_.mapped_bytes, pinning_status_.text())};
    }
    const char *advice = refusal_.cap_bytes < statistics_.cap_bytes
                             ? "the control group or the system has no room for more: raise its memory limit"
                             : "raise host_bytes (EBB_HOST_BYTES)";
    return {code::out_of_host_memory,
            fmt::format("pinned host memory: {} bytes wanted, {} mapped, the cap is {} bytes; {}", wanted_bytes,
                        statistics_.mapped_bytes, refusal_.cap_bytes, advice)};
}

status pinned_arena::reserve(uint64_t size_bytes) {
    const uint64_t wanted_bytes = page_up(size_bytes);
    if (wanted_bytes <= statistics_.mapped_bytes) {
        return {};
    }
    const uint64_t missing_bytes = wanted_bytes - statistics_.mapped_bytes;
    if (!growth_allowed(missing_bytes) || !map_slabs(missing_bytes)) {
        return growth_failure(wanted_bytes);
    }
    return {};
}

// ---- Giving back ---------------------------------------------------------------------------------------------

uint64_t pinned_arena::trim(std::vector<ticket> &waits) {
    uint64_t trimmed_bytes = 0;
    trimmed_.reserve(trimmed_.size() + slabs_.size());
    for (uint32_t region = 0; region < slabs_.size(); ++region) {
        slab &candidate = slabs_[region];
        if (candidate.size_bytes == 0 || !sub_.region_idle(region)) {
            continue;
        }
        sub_.remove_region(region, waits);
        trimmed_bytes += candidate.size_bytes;
        trimmed_.push_back(candidate);
        candidate = {};
    }
    return trimmed_bytes;
}

// Each registration is undone once: one that the device fails to undo is not tried again.
status pinned_arena::unmap_trimmed() {
    status first_failure;
    for (const slab &s : trimmed_) {
        status unmapped = device_.unmap_host(s.data, s.size_bytes);
        if (!unmapped.ok() && first_failure.ok()) {
            first_failure = std::move(unmapped);
        }
        statistics_.mapped_bytes -= s.size_bytes;
        --statistics_.slab_count;
    }
    if (!trimmed_.empty()) {
        backoff_ = {};
    }
    trimmed_.clear();
    return first_failure;
}

}  // namespace ebb
