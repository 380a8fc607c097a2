#include "device/host/device_arena.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/check.hpp"

namespace ebb {
namespace {

constexpr uint64_t k_alignment_bytes = 512;

uint64_t rounded(uint64_t size_bytes) noexcept {
    return (size_bytes + k_alignment_bytes - 1) / k_alignment_bytes * k_alignment_bytes;
}

host_pages pages_of(void *data, uint64_t rounded_bytes) noexcept {
    return {data, whole_pages(rounded_bytes)};
}

}  // namespace

device_arena::~device_arena() {
    for (const auto &[data, held] : blocks_) {
        unmap_pages(pages_of(data, held.rounded_bytes));
    }
}

status device_arena::out_of_memory(uint64_t size_bytes) const {
    return {code::out_of_device_memory,
            fmt::format("device memory: {} bytes wanted, {} bytes held, the cap is {} bytes; free some, or raise "
                        "host_device_bytes",
                        size_bytes, statistics_.used_bytes, statistics_.capacity_bytes)};
}

result<void *> device_arena::allocate(uint64_t size_bytes, memory_owner owner) {
    if (size_bytes == 0) {
        return status{code::invalid_argument, "device memory: 0 bytes wanted; ask for at least 1"};
    }
    const std::lock_guard lock(mutex_);
    const uint64_t room = statistics_.capacity_bytes - statistics_.used_bytes;
    if (size_bytes > room || rounded(size_bytes) > room) {
        return out_of_memory(size_bytes);
    }
    const uint64_t rounded_bytes = rounded(size_bytes);
    void *data = take_cached(size_bytes, rounded_bytes, owner);
    if (data == nullptr) {
        evict_for(rounded_bytes);
        const result<host_pages> pages = map_pages(rounded_bytes, touch_threads_);
        if (!pages.ok()) {
            return status{pages.why().code(), fmt::format("device memory of the host device: {}", pages.why().text())};
        }
        data = pages.value().data;
        blocks_[data] = {size_bytes, rounded_bytes, 0, true, owner};
        ++statistics_.mappings;
    }
    count_allocation(rounded_bytes);
    return data;
}

void device_arena::count_allocation(uint64_t rounded_bytes) {
    statistics_.used_bytes += rounded_bytes;
    statistics_.peak_bytes = std::max(statistics_.peak_bytes, statistics_.used_bytes);
    ++statistics_.allocations;
}

void *device_arena::take_cached(uint64_t size_bytes, uint64_t rounded_bytes, memory_owner owner) {
    const auto found = free_lists_.find(key(rounded_bytes, owner));
    if (found == free_lists_.end() || found->second.empty()) {
        return nullptr;
    }
    void *data = found->second.back();
    found->second.pop_back();
    block &taken = blocks_.at(data);
    taken.size_bytes = size_bytes;
    taken.live = true;
    statistics_.cached_bytes -= rounded_bytes;
    return data;
}

// Cold: it comes with a system call for the new block anyway.
void device_arena::evict_for(uint64_t rounded_bytes) {
    retired_.collect();
    while (statistics_.used_bytes + statistics_.cached_bytes + rounded_bytes > statistics_.capacity_bytes) {
        auto oldest = blocks_.end();
        for (auto candidate = blocks_.begin(); candidate != blocks_.end(); ++candidate) {
            if (!candidate->second.live &&
                (oldest == blocks_.end() || candidate->second.freed_at < oldest->second.freed_at)) {
                oldest = candidate;
            }
        }
        EBB_CHECK(oldest != blocks_.end());
        const uint64_t evicted_bytes = oldest->second.rounded_bytes;
        const cache_key evicted = key(evicted_bytes, oldest->second.owner);
        std::vector<void *> &list = free_lists_.at(evicted);
        list.erase(std::find(list.begin(), list.end(), oldest->first));
        if (list.empty()) {
            free_lists_.erase(evicted);  // sizes that change every step would pile up
        }
        retired_.add(pages_of(oldest->first, evicted_bytes));
        statistics_.cached_bytes -= evicted_bytes;
        blocks_.erase(oldest);
    }
}

status device_arena::free(void *data, uint64_t size_bytes) {
    const std::lock_guard lock(mutex_);
    return free_locked(data, &size_bytes);
}

status device_arena::free(void *data) {
    const std::lock_guard lock(mutex_);
    return free_locked(data, nullptr);
}

status device_arena::free_locked(void *data, const uint64_t *size_bytes) {
    const auto found = blocks_.find(data);
    if (found == blocks_.end() || !found->second.live) {
        return {
            code::invalid_argument,
            fmt::format("free_device: {} is no live block of this device; it was freed before, or never allocated here",
                        data)};
    }
    block &freed = found->second;
    if (size_bytes != nullptr && *size_bytes != freed.size_bytes) {
        return {code::invalid_argument,
                fmt::format("free_device: the block at {} has {} bytes, not {}", data, freed.size_bytes, *size_bytes)};
    }
    freed.live = false;
    freed.freed_at = ++frees_;
    free_lists_[key(freed.rounded_bytes, freed.owner)].push_back(data);
    statistics_.used_bytes -= freed.rounded_bytes;
    statistics_.cached_bytes += freed.rounded_bytes;
    return {};
}

device_arena_statistics device_arena::statistics() const {
    const std::lock_guard lock(mutex_);
    return statistics_;
}

}  // namespace ebb
