// Pages from the system for the device arena and for pinned memory: aligned for huge pages, faulted in by several
// threads, locked where the system allows.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"

namespace ebb {

struct host_pages {
    void *data = nullptr;
    uint64_t size_bytes = 0;  // a multiple of the page size
};

// Never below size_bytes; the largest uint64_t when that has no multiple of the page size above it.
[[nodiscard]] uint64_t whole_pages(uint64_t size_bytes) noexcept;

// Addresses alone: no page is taken yet.
result<host_pages> reserve_pages(uint64_t size_bytes);
// Faults them in. threads 0: as many as help. Where CPUs are named, the threads that do it run on those, so that the
// pages come from the memory beside them; where the system does not let them, anywhere.
status touch_pages(const host_pages &pages, uint32_t threads, const std::vector<int> &cpus = {});
// Both.
result<host_pages> map_pages(uint64_t size_bytes, uint32_t threads);
void unmap_pages(const host_pages &pages) noexcept;

// False when the system's limit on locked memory refuses; the pages stay usable.
[[nodiscard]] bool lock_pages(const host_pages &pages) noexcept;

}  // namespace ebb
