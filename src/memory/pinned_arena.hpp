// Pinned host memory for offloaded activations: slabs registered once and never moved, blocks of exact size
// (aligned to 4 KiB), a block that fits in no single free range is a list of extents. No extent crosses two
// registrations. Capped in bytes. A refused growth is a fact with numbers, never a crash: the runtime then
// keeps the activation.
//
// Waste, (mapped - requested) / mapped at the peak, is bounded by how the arena grows: a slab is as large as the
// request or a sixteenth of what is mapped, and free bytes are left aside (instead of being used as extents) only
// while they are at most a twelfth of the whole. A block has at most 16 extents unless that would break the bound or
// the cap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.hpp"
#include "base/ticket.hpp"
#include "device/device.hpp"
#include "memory/sub_allocator.hpp"

namespace ebb {

struct pinned_arena_options {
    uint64_t cap_bytes = 0;  // 0: what the device's host_room_bytes allows at create, or this process's share of it
    uint64_t max_slab_bytes = 0;  // largest growth step; a larger block gets a slab of its own. 0: the device's
    uint32_t sharers = 1;         // processes of this host
};

struct pinned_arena_statistics {
    uint64_t cap_bytes = 0;
    uint64_t mapped_bytes = 0, mapped_peak_bytes = 0;
    uint64_t requested_bytes = 0, requested_peak_bytes = 0;  // exact sizes asked for, of live blocks
    uint64_t requested_at_mapped_peak_bytes = 0;             // waste = (mapped - requested) / mapped, there
    uint64_t slab_count = 0, block_count = 0, extent_count = 0;
};

class pinned_arena {
public:
    using block_id = uint32_t;
    struct extent {
        std::byte *data;
        uint64_t size_bytes;  // the last extent of a block ends at its requested size
    };
    enum class refusal_kind : uint8_t { none, cap, pinning, frozen };
    // wanted: what was asked for; held: what live blocks take, rounded to 4 KiB; cap: the smaller of our cap and
    // of what the host's limits allow. held + wanted, rounded to 4 KiB, is the smallest cap that would do.
    struct refusal {
        refusal_kind kind = refusal_kind::none;
        uint64_t wanted_bytes = 0, held_bytes = 0, cap_bytes = 0;
    };

    pinned_arena(device &dev, const pinned_arena_options &options);
    ~pinned_arena();  // unmaps; the caller has waited for the copies
    pinned_arena(const pinned_arena &) = delete;
    pinned_arena &operator=(const pinned_arena &) = delete;

    // Appends to waits what the first copy into the block must wait for. Empty when refused: see last_refusal().
    // Grows (maps a slab) when the free bytes do not suffice; allocates nothing else once warm. size_bytes > 0.
    [[nodiscard]] std::optional<block_id> allocate(uint64_t size_bytes, std::vector<ticket> &waits) {
        const block_id id = allocate_block(size_bytes, waits);
        return id == k_none ? std::nullopt : std::optional<block_id>(id);
    }
    void free(block_id block, const ticket_set &last_uses);
    [[nodiscard]] const refusal &last_refusal() const noexcept { return refusal_; }
    // The device's own words for the last refused pinning.
    [[nodiscard]] const status &last_pinning_status() const noexcept { return pinning_status_; }

    [[nodiscard]] uint64_t block_bytes(block_id block) const noexcept;
    [[nodiscard]] uint32_t extent_count(block_id block) const noexcept;
    // visit(extent) in order.
    template <class Visit>
    void for_each_extent(block_id block, Visit &&visit) const;

    // While frozen nothing is mapped: what does not fit what is there is refused.
    void freeze(bool frozen) noexcept { frozen_ = frozen; }
    // What was there could not be used while it is frozen.
    void refuse_frozen(uint64_t wanted_bytes) noexcept;

    // Maps ahead so that this many bytes are mapped.
    status reserve(uint64_t size_bytes);
    // Slabs without a block in use are taken out of service; their tickets are appended to waits. Once the caller has
    // waited for those, unmap_trimmed() gives them back. Returns the bytes.
    uint64_t trim(std::vector<ticket> &waits);
    status unmap_trimmed();

    [[nodiscard]] const pinned_arena_statistics &statistics() const noexcept { return statistics_; }

private:
    static constexpr uint32_t k_none = ~uint32_t{0};

    struct slab {
        std::byte *data = nullptr;
        uint64_t size_bytes = 0;
    };
    struct extent_node {
        sub_allocator::segment_id segment = 0;
        uint32_t next = k_none;  // of the same block, or of the unused ones
    };
    // The first extent lies in the record: nearly every block has only that one.
    struct block {
        uint64_t size_bytes = 0;  // 0: the record is unused
        sub_allocator::segment_id first = 0;
        uint32_t more = k_none;  // further extents; of an unused record: the next unused one
        uint32_t extent_count = 0;
    };
    // After a refused growth, one of that size or more is not tried again for a while: 1 time, then 2, 4, ...
    // Counted in attempts, so that the same calls do the same. Forgotten when memory is given back.
    struct backoff {
        uint64_t refused_bytes = ~uint64_t{0};
        uint32_t skips_left = 0;
        uint32_t next_skips = 1;
        refusal_kind kind = refusal_kind::none;
        uint64_t limit_bytes = 0;
    };

    // Both return k_none when refused. (An optional that is returned by a call that is not inlined goes through memory,
    // and reading it back there costs more than a list operation.)
    [[nodiscard]] block_id allocate_block(uint64_t size_bytes, std::vector<ticket> &waits);
    [[nodiscard]] block_id allocate_with_growth(uint64_t size_bytes, uint64_t rounded_bytes,
                                                std::vector<ticket> &waits);
    enum class free_use : uint8_t { none, large, all };
    [[nodiscard]] uint64_t usable_bytes(free_use use, uint64_t enough_bytes) const noexcept;
    [[nodiscard]] bool make_room(uint64_t rounded_bytes);
    [[nodiscard]] bool grow(uint64_t size_bytes);
    [[nodiscard]] bool map_slabs(uint64_t size_bytes);
    [[nodiscard]] bool growth_allowed(uint64_t size_bytes);
    [[nodiscard]] bool map_slab(uint64_t size_bytes);
    void note_refused_growth(uint64_t size_bytes, refusal_kind kind, uint64_t limit_bytes);
    [[nodiscard]] status growth_failure(uint64_t wanted_bytes) const;

    void take_extents(block_id &id, uint64_t size_bytes, uint64_t rounded_bytes, std::vector<ticket> &waits);
    void give_back(block_id id, const std::vector<ticket> &waits, size_t first_wait) noexcept;
    void add_unused_block();
    void keep_unused_block();
    block_id new_block(uint64_t size_bytes, sub_allocator::segment_id first) noexcept;
    void keep_unused_extent();
    uint32_t add_extent(block_id id, uint32_t last, sub_allocator::segment_id segment) noexcept;
    [[nodiscard]] const block &live(block_id id) const noexcept;

    device &device_;
    uint64_t max_slab_bytes_;
    sub_allocator sub_;
    std::vector<slab> slabs_;  // by region number; size 0: that number is not in service
    std::vector<slab> trimmed_;
    std::vector<block> blocks_;
    uint32_t unused_blocks_ = k_none;
    std::vector<extent_node> extents_;
    uint32_t unused_extents_ = k_none;
    backoff backoff_;
    bool frozen_ = false;
    refusal refusal_;
    status pinning_status_;
    pinned_arena_statistics statistics_;
};

template <class Visit>
void pinned_arena::for_each_extent(block_id id, Visit &&visit) const {
    const block &record = live(id);
    uint64_t left_bytes = record.size_bytes;
    sub_allocator::segment_id segment = record.first;
    for (uint32_t more = record.more;; more = extents_[more].next) {
        const uint64_t held_bytes = sub_.size_bytes(segment);
        const uint64_t size_bytes = held_bytes < left_bytes ? held_bytes : left_bytes;
        visit(extent{sub_.data(segment), size_bytes});
        left_bytes -= size_bytes;
        if (more == k_none) {
            break;
        }
        segment = extents_[more].segment;
    }
}

}  // namespace ebb
