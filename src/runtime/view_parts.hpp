// The parts of a block that hold a view's bytes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/status.hpp"
#include "memory/pinned_arena.hpp"
#include "runtime/activation.hpp"

namespace ebb {

// visit(part in the block, where it lies from `data` on, its bytes), until it fails.
template <class Visit>
status for_each_part(const pinned_arena &arena, pinned_arena::block_id block, const activation &view, std::byte *data,
                     const Visit &visit) {
    const uint64_t first = view.view_offset_bytes;
    const uint64_t end = first + view.size_bytes;
    uint64_t at = 0;
    status visited;
    arena.for_each_extent(block, [&](const pinned_arena::extent &e) {
        const uint64_t from = std::max(at, first);
        const uint64_t to = std::min(at + e.size_bytes, end);
        if (visited.ok() && from < to) {
            visited = visit(e.data + (from - at), data + (from - first), to - from);
        }
        at += e.size_bytes;
    });
    return visited;
}

}  // namespace ebb
