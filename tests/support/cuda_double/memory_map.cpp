#include "cuda_double/memory_map.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace ebb::test {
namespace {

// Device memory starts this far into its pages: aligned to 512 and no more.
constexpr uint64_t k_device_offset_bytes = 512;

// Fresh memory holds anything.
void make_dirty(const memory_block &block) {
    constexpr uint64_t k_dirty_bytes = 4096;
    constexpr int k_dirt = 0xA5;
    auto *first = reinterpret_cast<unsigned char *>(block.first);
    const uint64_t some = std::min(block.size_bytes, k_dirty_bytes);
    std::memset(first, k_dirt, some);
    std::memset(first + block.size_bytes - some, k_dirt, some);
}

}  // namespace

memory_map::~memory_map() {
    for (const auto &[first, block] : blocks_) {
        if (!block.registered) {
            unmap_pages(block.pages);
        }
    }
    for (const host_pages &pages : in_use_) {
        unmap_pages(pages);
    }
}

bool memory_map::allocate(memory_block block, void **data) {
    const uint64_t offset_bytes = block.place == memory_place::device ? k_device_offset_bytes : 0;
    const result<host_pages> pages = map_pages(block.size_bytes + offset_bytes, 1);
    if (!pages.ok()) {
        return false;
    }
    block.pages = pages.value();
    block.first = reinterpret_cast<uintptr_t>(block.pages.data) + offset_bytes;
    block.serial = next_serial_++;
    make_dirty(block);
    live_[block.serial] = block.first;
    *data = reinterpret_cast<void *>(block.first);
    blocks_[block.first] = std::move(block);
    return true;
}

memory_block *memory_map::add_registered(void *data, memory_block block) {
    if (containing(data) != nullptr || touches_a_block(data, block.size_bytes)) {
        return nullptr;
    }
    block.first = reinterpret_cast<uintptr_t>(data);
    block.serial = next_serial_++;
    block.registered = true;
    live_[block.serial] = block.first;
    return &(blocks_[block.first] = std::move(block));
}

void memory_map::remove(const memory_block &block, bool in_use) {
    live_.erase(block.serial);
    if (!block.registered) {
        if (in_use) {
            in_use_.push_back(block.pages);
        } else {
            unmap_pages(block.pages);
        }
    }
    blocks_.erase(block.first);
}

memory_block *memory_map::containing(const void *data) {
    auto after = blocks_.upper_bound(reinterpret_cast<uintptr_t>(data));
    if (after == blocks_.begin()) {
        return nullptr;
    }
    memory_block &candidate = std::prev(after)->second;
    return reinterpret_cast<uintptr_t>(data) < candidate.end() ? &candidate : nullptr;
}

memory_block *memory_map::starting_at(const void *data) {
    const auto found = blocks_.find(reinterpret_cast<uintptr_t>(data));
    return found == blocks_.end() ? nullptr : &found->second;
}

bool memory_map::touches_a_block(const void *data, uint64_t size_bytes) const {
    const auto first = reinterpret_cast<uintptr_t>(data);
    const auto after = blocks_.lower_bound(first + size_bytes);
    return after != blocks_.begin() && std::prev(after)->second.end() > first;
}

std::optional<std::string> memory_map::use(const stream_work &work, uint32_t stream, uint64_t count,
                                           const progress_clock &behind, const progress_clock &known) {
    std::optional<std::string> found;
    for (const memory_access &access : work.accesses) {
        const auto live = live_.find(access.block);
        if (live == live_.end()) {
            continue;
        }
        memory_block &block = blocks_.at(live->second);
        for (const memory_use &earlier : block.uses) {
            if (earlier.stream != stream && earlier.access.conflicts(access) &&
                behind.of(earlier.stream) < earlier.count && known.of(earlier.stream) < earlier.count) {
                found = fmt::format("{} on stream {} is not ordered behind {} on stream {}, of the same memory",
                                    work.what, stream, earlier.what, earlier.stream);
            }
        }
        memory_use added{access, stream, count, work.what};
        forget_covered(block, added, behind, known);
        block.uses.push_back(std::move(added));
    }
    return found;
}

// Of earlier uses, those that whoever is ordered behind the newer one is ordered behind as well.
void memory_map::forget_covered(memory_block &block, const memory_use &newer, const progress_clock &behind,
                                const progress_clock &known) {
    const auto covered = [&](const memory_use &earlier) {
        if (known.of(earlier.stream) >= earlier.count) {
            return true;
        }
        const bool inside = earlier.access.first >= newer.access.first && earlier.access.end <= newer.access.end;
        const bool ordered = earlier.stream == newer.stream || behind.of(earlier.stream) >= earlier.count;
        return inside && ordered && (newer.access.writes || !earlier.access.writes);
    };
    block.uses.erase(std::remove_if(block.uses.begin(), block.uses.end(), covered), block.uses.end());
}

std::optional<std::string> memory_map::in_flight(const memory_block &block, const progress_clock &known) {
    for (const memory_use &use : block.uses) {
        if (known.of(use.stream) < use.count) {
            return fmt::format("{} on stream {}", use.what, use.stream);
        }
    }
    return std::nullopt;
}

}  // namespace ebb::test
