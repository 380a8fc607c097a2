// Cuts regions of memory into blocks: exact sizes (in granules), split and merge. Shared by the pinned arena and by
// staging. Freeing is O(1) amortised, and so is the search for the best fit, unless no class above the request's own
// has a range: then that class is searched. The search for the oldest looks at all free ranges that may fit.
//
// A free range knows which of its parts was freed behind which tickets: memory is a list of segments in
// address order, neighbouring free segments form one free range for the search, but keep their own tickets
// and their own age. An allocation consumes segments and reports the tickets of exactly those, so that it waits for the
// readers of its own bytes and for nobody else's.
//
// Which memory is taken follows from the order of the calls alone, never from what the device has finished.
//
// Free ranges ("runs") are listed by size class: a class spans 1/32 of its size, so the first run of the next class
// fits and is at most that much larger than needed. Within a class, first freed is first taken. An allocation is cut
// from the end of the run whose bytes were freed earlier. Nodes and lists are index-linked and recycled: once as many
// segments have existed as ever will at a time, nothing is allocated. Where the heap has nothing left, a call throws
// and has changed nothing, but for tickets appended.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ticket.hpp"

namespace ebb {

// best: the smallest range that fits (to within a size class), among equals the one freed first (pinned memory: low
// waste).
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

    // Less than 2^31 granules: 1 TiB of 512 bytes, 8 TiB of 4 KiB.
    [[nodiscard]] uint64_t max_region_bytes() const noexcept { return uint64_t{k_max_granules} << granule_shift_; }
    // The memory stays the caller's. Its start must be aligned to the granule, and it is not larger than the largest
    // region. Returns the region's number.
    uint32_t add_region(std::byte *data, uint64_t size_bytes);
    // The number that the next region will have: adding it then needs no heap memory.
    uint32_t prepare_region();
    [[nodiscard]] bool region_idle(uint32_t region) const noexcept;  // no block in use
    // Idle regions whose bytes were all freed behind one timeline become one segment again, behind the last of its
    // points: what is cut from them next depends on nothing that was cut before.
    void restart_idle_regions();
    // Only of an idle region: forgets it, appending the tickets of its segments to waits.
    void remove_region(uint32_t region, std::vector<ticket> &waits);

    // Appends the tickets of the consumed segments to waits. Empty when nothing fits.
    [[nodiscard]] std::optional<piece> allocate(uint64_t size_bytes, fit_rule rule, std::vector<ticket> &waits);
    // The largest free range (to within a size class), but at most size_bytes: for blocks made of extents.
    [[nodiscard]] std::optional<piece> allocate_largest(uint64_t size_bytes, std::vector<ticket> &waits);
    void free(segment_id segment, const ticket_set &last_uses);

    // Of a segment in use.
    [[nodiscard]] std::byte *data(segment_id segment) const noexcept { return nodes_[segment].data; }
    [[nodiscard]] uint64_t size_bytes(segment_id segment) const noexcept {
        return uint64_t{nodes_[segment].granules} << granule_shift_;
    }

    // What up to count pieces from allocate_largest would give in all, leaving out ranges below minimum_bytes. Stops
    // counting when there is enough.
    [[nodiscard]] uint64_t largest_pieces_bytes(uint32_t count, uint64_t minimum_bytes,
                                                uint64_t enough_bytes) const noexcept;

    [[nodiscard]] uint64_t total_bytes() const noexcept { return total_granules_ << granule_shift_; }
    [[nodiscard]] uint64_t free_bytes() const noexcept { return free_granules_ << granule_shift_; }
    [[nodiscard]] uint64_t largest_free_bytes() const noexcept;

private:
    static constexpr uint32_t k_none = ~uint32_t{0};
    static constexpr uint32_t k_second_level_bits = 5;  // 32 classes for each power of two
    static constexpr uint32_t k_second_level = 1U << k_second_level_bits;
    static constexpr uint32_t k_first_level = 32 - k_second_level_bits + 1;
    static constexpr uint32_t k_class_count = k_first_level * k_second_level;
    static constexpr uint32_t k_max_granules = (1U << 31U) - 1;
    static constexpr uint32_t k_own_class_tries = 8;
    static constexpr uint32_t k_edge = 0;  // the node that stands for what lies outside a region: never free

    enum class node_state : uint8_t { recycled, in_use, free };

    // One segment, in one cache line. Free segments side by side form a run: its first and last segment know each
    // other, those between know nothing, so joining and cutting runs touches the ends only.
    struct alignas(64) node {
        std::byte *data = nullptr;
        uint64_t age = 0;     // free: when it was freed, in frees
        ticket first_ticket;  // free: the only ticket, if there is one
        uint32_t granules = 0;
        uint32_t region = 0;
        uint32_t neighbour[2] = {k_edge, k_edge};  // in address order: [0] below, [1] above
        uint32_t run_first = 0;                    // last of a run
        uint8_t ticket_count = 0;                  // above 1: all of them are in more_tickets_
        node_state state = node_state::recycled;
    };
    static_assert(sizeof(node) == 64);
    // What the search reads, packed apart. Records 0 to k_class_count - 1 are the heads of the class lists, which
    // are rings; the run whose first segment is node i has record k_class_count + i.
    struct run {
        uint32_t previous = 0;
        uint32_t next = 0;
        uint32_t granules = 0;
        uint32_t last = 0;  // node
    };
    struct region_record {
        uint32_t blocks_in_use = 0;
        uint32_t granules = 0;           // 0: the number is not in service
        uint32_t latest_block = k_edge;  // node of the block that was cut from it last
    };

    [[nodiscard]] static uint32_t class_of(uint32_t granules) noexcept;
    [[nodiscard]] uint64_t granules_for(uint64_t size_bytes) const noexcept;
    [[nodiscard]] uint32_t next_class(uint32_t from) const noexcept;       // the first with a run, from this one on
    [[nodiscard]] uint32_t previous_class(uint32_t below) const noexcept;  // the last with a run, before this one
    [[nodiscard]] run &run_of(uint32_t first_node) noexcept { return runs_[k_class_count + first_node]; }
    [[nodiscard]] const run &run_of(uint32_t first_node) const noexcept { return runs_[k_class_count + first_node]; }

    // Both return a run's first node, k_edge when there is none.
    [[nodiscard]] uint32_t find_best(uint32_t granules) const noexcept;
    [[nodiscard]] uint32_t find_in_class(uint32_t size_class, uint32_t granules, uint32_t tries) const noexcept;
    [[nodiscard]] uint32_t find_oldest(uint32_t granules) const noexcept;

    [[nodiscard]] uint32_t first_node(uint32_t region) const noexcept;
    void restart_region(uint32_t region);
    void keep_spare_node();
    void add_spare_node();
    uint32_t spare_node() noexcept;
    void recycle(uint32_t index) noexcept;
    void list(uint32_t first_node, uint32_t size_class, bool at_front) noexcept;
    void unlist(uint32_t first_node) noexcept;
    void set_run(uint32_t first_node, uint32_t last_node, uint32_t granules) noexcept;

    std::optional<piece> take(uint32_t first_node, uint32_t granules, std::vector<ticket> &waits);
    uint32_t consume(uint32_t near, uint32_t forward, uint32_t granules, std::vector<ticket> &waits);
    void append_tickets(uint32_t index, std::vector<ticket> &waits) const;

    uint32_t granule_shift_;
    uint32_t recycled_nodes_ = k_edge;
    uint64_t granule_mask_;
    uint64_t clock_ = 0;  // counts frees and new regions: the age of free bytes
    uint64_t total_granules_ = 0;
    uint64_t free_granules_ = 0;
    std::vector<node> nodes_;
    std::vector<run> runs_;
    std::vector<ticket_set> more_tickets_;  // of the node with the same index
    std::vector<region_record> regions_;
    uint32_t first_level_ = 0;                                // bit i: some bit of second_level_[i] is set
    std::array<uint32_t, k_first_level + 1> second_level_{};  // bit j of entry i: class 32 i + j has a run
};

}  // namespace ebb
