// Records addressed by handles: an index and a generation in one 64-bit number. A stale or made-up handle is
// not found, never undefined behaviour. Records are recycled, keep their address and their capacity.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/check.hpp"

namespace ebb {

template <class Record>
class handle_table {
public:
    using index = uint32_t;
    static constexpr index k_none = ~index{0};

    // Tables that start apart do not take each other's handles for their own, up to 2^32 reuses of one record.
    explicit handle_table(uint32_t first_generation = 1) noexcept
        : first_generation_(first_generation == 0 ? 1 : first_generation) {}

    index acquire() {
        if (free_head_ == k_none) {
            grow();
        }
        const index i = free_head_;
        node &n = at(i);
        free_head_ = n.next_free;
        n.next_free = k_live;
        ++live_count_;
        return i;
    }

    // Its handles are stale from here on.
    void release(index i) noexcept {
        node &n = at(i);
        EBB_CHECK(n.next_free == k_live);
        n.generation = n.generation == ~uint32_t{0} ? 1 : n.generation + 1;
        n.next_free = free_head_;
        free_head_ = i;
        --live_count_;
    }

    // Makes handles to a live record stale without ending the record.
    void invalidate(index i) noexcept {
        node &n = at(i);
        n.generation = n.generation == ~uint32_t{0} ? 1 : n.generation + 1;
    }

    [[nodiscard]] uint64_t handle(index i) const noexcept { return (uint64_t{at(i).generation} << 32U) | i; }

    [[nodiscard]] static index index_of(uint64_t handle) noexcept { return static_cast<index>(handle & 0xFFFFFFFFU); }

    [[nodiscard]] index find(uint64_t handle) const noexcept {
        const index i = index_of(handle);
        if (i >= pages_.size() * k_page) {
            return k_none;
        }
        const node &n = at(i);
        return n.next_free == k_live && n.generation == handle >> 32U ? i : k_none;
    }

    [[nodiscard]] Record &operator[](index i) noexcept { return at(i).record; }
    [[nodiscard]] const Record &operator[](index i) const noexcept { return at(i).record; }
    [[nodiscard]] uint32_t live_count() const noexcept { return live_count_; }

    [[nodiscard]] bool live(index i) const noexcept { return at(i).next_free == k_live; }
    [[nodiscard]] index capacity() const noexcept { return static_cast<index>(pages_.size() * k_page); }

private:
    static constexpr uint32_t k_page = 256;
    static constexpr index k_live = k_none - 1;
    struct alignas(64) node {
        uint32_t generation = 1;   // never 0, so that no handle is 0
        index next_free = k_none;  // or k_live
        Record record;
    };

    [[nodiscard]] node &at(index i) noexcept { return pages_[i / k_page][i % k_page]; }
    [[nodiscard]] const node &at(index i) const noexcept { return pages_[i / k_page][i % k_page]; }

    void grow() {
        const auto first = static_cast<index>(pages_.size() * k_page);
        pages_.push_back(std::make_unique<node[]>(k_page));
        for (uint32_t i = k_page; i-- > 0;) {
            at(first + i).generation = first_generation_;
            at(first + i).next_free = free_head_;
            free_head_ = first + i;
        }
    }

    std::vector<std::unique_ptr<node[]>> pages_;
    uint32_t first_generation_;
    index free_head_ = k_none;
    uint32_t live_count_ = 0;
};

}  // namespace ebb
