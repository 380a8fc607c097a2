// Cuts regions of memory into blocks: exact sizes (in granules), split and merge, O(1) amortised. Shared by
// the pinned arena and by staging.
//
// A free range knows which of its parts was freed behind which tickets: memory is a list of segments in
// address order, neighbouring free segments form one free range for the search, but keep their own tickets
// and their own age. An allocation consumes segments and reports the tickets of exactly those, so that it waits for the
// readers of its own bytes and for nobody else's.
//
// Which memory is taken follows from the order of the calls alone, never from what the device has finished.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ticket.hpp"

namespace ebb {

// best: the smallest range that fits, among equals the one freed first (pinned memory: low waste).
// oldest: among all that fit the one whose bytes were freed first (slots: its readers are likeliest done).
enum class fit_rule : uint8_t { best, oldest };

class sub_allocator {
public:
    using segment_id = uint32_t;
    struct piece {
        segment_id segment;
        std::byte *data;
        uint64_t size_bytes;  // what was asked for, rounded up to the granule
    };

    explicit sub_allocator(uint64_t granule_bytes);

    // The memory stays the caller's. Its start must be aligned to the granule. Returns the region's number.
    uint32_t add_region(std::byte *data, uint64_t size_bytes);
    [[nodiscard]] bool region_idle(uint32_t region) const noexcept;  // no block in use
    // Only of an idle region: forgets it, appending the tickets of its segments to waits.
    void remove_region(uint32_t region, std::vector<ticket> &waits);

    // Appends the tickets of the consumed segments to waits. Empty when nothing fits.
    [[nodiscard]] std::optional<piece> allocate(uint64_t size_bytes, fit_rule rule, std::vector<ticket> &waits);
    // The largest free range, but at most size_bytes: for blocks made of extents.
    [[nodiscard]] std::optional<piece> allocate_largest(uint64_t size_bytes, std::vector<ticket> &waits);
    void free(segment_id segment, const ticket_set &last_uses);

    [[nodiscard]] uint64_t total_bytes() const noexcept;
    [[nodiscard]] uint64_t free_bytes() const noexcept;
    [[nodiscard]] uint64_t largest_free_bytes() const noexcept;
};

}  // namespace ebb
