// The "device" memory of the host device: blocks from the system up to a cap. Freed blocks are kept by their exact
// size, so that the same sizes again cost no system call; they make way when other sizes need the room.
//
// Callers free memory in the order of their streams, before these have come to the last use. The core's copies run on
// streams of its own, so a block that a caller freed is kept for callers and never becomes the core's, or the
// other way round.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/status.hpp"
#include "device/host/host_pages.hpp"
#include "device/host/retired_pages.hpp"

namespace ebb {

struct device_arena_statistics {
    uint64_t capacity_bytes = 0;
    uint64_t used_bytes = 0;    // of live blocks, each rounded up to 512
    uint64_t peak_bytes = 0;    // most ever used
    uint64_t cached_bytes = 0;  // freed and kept; used + cached <= capacity
    uint64_t allocations = 0;   // calls that succeeded
    uint64_t mappings = 0;      // of them, those that asked the system
};

enum class memory_owner : uint8_t { core, caller };

class device_arena {
public:
    device_arena(uint64_t capacity_bytes, uint32_t touch_threads, retired_pages &retired)
        : touch_threads_(touch_threads), retired_(retired) {
        statistics_.capacity_bytes = capacity_bytes;
    }
    ~device_arena();
    device_arena(const device_arena &) = delete;
    device_arena &operator=(const device_arena &) = delete;

    result<void *> allocate(uint64_t size_bytes, memory_owner owner);
    status free(void *data, uint64_t size_bytes);
    // Of whatever size it is.
    status free(void *data);
    [[nodiscard]] device_arena_statistics statistics() const;

private:
    struct block {
        uint64_t size_bytes = 0;     // as asked for
        uint64_t rounded_bytes = 0;  // as counted
        uint64_t freed_at = 0;       // count of frees then; the oldest makes way first
        bool live = false;
        memory_owner owner = memory_owner::core;
    };
    // Sizes are multiples of 512, which leaves room for the owner.
    using cache_key = uint64_t;
    static cache_key key(uint64_t rounded_bytes, memory_owner owner) noexcept {
        return rounded_bytes + static_cast<uint64_t>(owner);
    }
    [[nodiscard]] status out_of_memory(uint64_t size_bytes) const;
    void *take_cached(uint64_t size_bytes, uint64_t rounded_bytes, memory_owner owner);
    void evict_for(uint64_t rounded_bytes);
    void count_allocation(uint64_t rounded_bytes);
    status free_locked(void *data, const uint64_t *size_bytes);

    const uint32_t touch_threads_;
    retired_pages &retired_;
    mutable std::mutex mutex_;
    std::unordered_map<void *, block> blocks_;                       // live and cached
    std::unordered_map<cache_key, std::vector<void *>> free_lists_;  // cached
    uint64_t frees_ = 0;
    device_arena_statistics statistics_;
};

}  // namespace ebb
