// Pinned host memory for offloaded activations: slabs registered once and never moved, blocks of exact size
// (aligned to 4 KiB), a block that fits in no single free range is a list of extents. No extent crosses two
// registrations. Capped in bytes. A refused growth is a fact with numbers, never a crash: the runtime then
// keeps the activation.
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
    uint64_t cap_bytes = 0;       // 0: what the device's host_room_bytes allows at create
    uint64_t max_slab_bytes = 0;  // 0: the device's
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
    enum class refusal_kind : uint8_t { none, cap, pinning };
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
    [[nodiscard]] std::optional<block_id> allocate(uint64_t size_bytes, std::vector<ticket> &waits);
    void free(block_id block, const ticket_set &last_uses);
    [[nodiscard]] const refusal &last_refusal() const noexcept;
    // The device's own words for the last refused pinning.
    [[nodiscard]] const status &last_pinning_status() const noexcept;

    [[nodiscard]] uint64_t block_bytes(block_id block) const noexcept;
    [[nodiscard]] uint32_t extent_count(block_id block) const noexcept;
    // visit(extent) in order.
    template <class Visit>
    void for_each_extent(block_id block, Visit &&visit) const;

    // Maps ahead so that this many bytes are mapped.
    status reserve(uint64_t size_bytes);
    // Slabs without a block in use are taken out of service; their tickets are appended to waits. Once the caller has
    // waited for those, unmap_trimmed() gives them back. Returns the bytes.
    uint64_t trim(std::vector<ticket> &waits);
    status unmap_trimmed();

    [[nodiscard]] const pinned_arena_statistics &statistics() const noexcept;
};

}  // namespace ebb
