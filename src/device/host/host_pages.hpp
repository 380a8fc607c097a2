// Pages from the system for the device arena and for pinned memory: aligned for huge pages, faulted in by several
// threads, locked where the system allows.
#pragma once

#include <cstdint>

#include "base/status.hpp"

namespace ebb {

struct host_pages {
    void *data = nullptr;
    uint64_t size_bytes = 0;  // a multiple of the page size
};

// Never below size_bytes; the largest uint64_t when that has no multiple of the page size above it.
[[nodiscard]] uint64_t whole_pages(uint64_t size_bytes) noexcept;

// Mapped and faulted in. threads 0: as many as help.
result<host_pages> map_pages(uint64_t size_bytes, uint32_t threads);
void unmap_pages(const host_pages &pages) noexcept;

// False when the system's limit on locked memory refuses; the pages stay usable.
[[nodiscard]] bool lock_pages(const host_pages &pages) noexcept;

}  // namespace ebb
