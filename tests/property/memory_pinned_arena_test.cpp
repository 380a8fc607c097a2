// The pinned arena under random traffic, refusals and trims: no byte has two owners, no extent leaves its
// registration, tickets are those of the bytes, caps hold, and the same calls give the same result.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "memory/pinned_arena.hpp"
#include "support/fake_memory_device.hpp"
#include "support/one_ticket.hpp"

namespace ebb {
namespace {

constexpr uint64_t k_page = 4096;

class world {
public:
    explicit world(uint64_t seed) : random_(seed), arena_(device_, options(random_)) {
        if (random_() % 3 == 0) {
            device_.pinning_limit_bytes = (1 + random_() % 1500) * k_page;
        }
        if (random_() % 3 == 0) {
            device_.host_limit_bytes = (1 + random_() % 1500) * k_page;
        }
    }

    void run(int rounds) {
        for (int round = 0; round < rounds && !::testing::Test::HasFatalFailure(); ++round) {
            const uint64_t choice = random_() % 100;
            if (choice < 54) {
                allocate();
            } else if (choice < 98) {
                free_one();
            } else {
                trim();
            }
            check_statistics();
        }
        while (!live_.empty()) {
            free_one();
        }
        trim();
        EXPECT_EQ(arena_.statistics().mapped_bytes, 0U);  // every slab was idle: all bytes had come back
        EXPECT_TRUE(device_.mappings().empty());
        EXPECT_EQ(device_.unmap_calls, device_.map_calls - device_.refused_map_calls);
    }

    [[nodiscard]] const std::vector<uint64_t> &log() const { return log_; }

private:
    struct live_block {
        pinned_arena::block_id id;
        uint64_t size_bytes;
    };

    static pinned_arena_options options(std::mt19937_64 &random) {
        return {(1 + random() % 2000) * k_page, random() % 2 == 0 ? 0 : (1 + random() % 100) * k_page};
    }

    void allocate() {
        const uint64_t size_bytes = 1 + random_() % (random_() % 5 == 0 ? 400 * k_page : 40 * k_page);
        waits_.clear();
        const auto id = arena_.allocate(size_bytes, waits_);
        if (!id) {
            check_refusal(size_bytes);
            log_.push_back(0);
            return;
        }
        ASSERT_EQ(arena_.block_bytes(*id), size_bytes);
        uint64_t sum_bytes = 0;
        uint32_t extents = 0;
        std::set<uint64_t> expected;
        arena_.for_each_extent(*id, [&](const pinned_arena::extent &extent) {
            check_extent(extent);
            own(extent, expected);
            sum_bytes += extent.size_bytes;
            ++extents;
        });
        ASSERT_EQ(sum_bytes, size_bytes);
        ASSERT_EQ(extents, arena_.extent_count(*id));
        std::set<uint64_t> reported;
        for (const ticket &t : waits_) {
            reported.insert(t.sequence);
        }
        ASSERT_EQ(reported, expected);
        live_.push_back({*id, size_bytes});
    }

    void check_extent(const pinned_arena::extent &extent) {
        ASSERT_EQ(reinterpret_cast<uint64_t>(extent.data) % k_page, 0U);
        ASSERT_GT(extent.size_bytes, 0U);
        auto mapping = device_.mappings().upper_bound(extent.data);
        ASSERT_NE(mapping, device_.mappings().begin());
        --mapping;
        const auto offset = static_cast<uint64_t>(extent.data - static_cast<std::byte *>(mapping->first));
        ASSERT_LE(offset + extent.size_bytes, mapping->second);
        // Where the system puts a mapping is its own affair: its number and the offset are ours.
        log_.push_back(offset);
        log_.push_back(extent.size_bytes);
    }

    void own(const pinned_arena::extent &extent, std::set<uint64_t> &expected) {
        const auto address = reinterpret_cast<uint64_t>(extent.data);
        for (uint64_t page = address; page < address + extent.size_bytes; page += k_page) {
            ASSERT_TRUE(owned_.insert(page).second);
            const auto freed = freed_.find(page);
            if (freed != freed_.end()) {
                expected.insert(freed->second);
                freed_.erase(freed);
            }
        }
    }

    void free_one() {
        if (live_.empty()) {
            return;
        }
        const size_t at = random_() % live_.size();
        const live_block block = live_[at];
        live_[at] = live_.back();
        live_.pop_back();
        ++sequence_;
        arena_.for_each_extent(block.id, [&](const pinned_arena::extent &extent) {
            const auto address = reinterpret_cast<uint64_t>(extent.data);
            for (uint64_t page = address; page < address + extent.size_bytes; page += k_page) {
                owned_.erase(page);
                freed_[page] = sequence_;
            }
        });
        arena_.free(block.id, one_ticket(sequence_));
    }

    void trim() {
        waits_.clear();
        const uint64_t mapped_bytes = arena_.statistics().mapped_bytes;
        const uint64_t trimmed_bytes = arena_.trim(waits_);
        ASSERT_EQ(arena_.statistics().mapped_bytes, mapped_bytes);
        ASSERT_TRUE(arena_.unmap_trimmed().ok());
        ASSERT_EQ(arena_.statistics().mapped_bytes, mapped_bytes - trimmed_bytes);
        // The trimmed slabs' tickets were reported, all of them.
        std::set<uint64_t> reported;
        for (const ticket &t : waits_) {
            reported.insert(t.sequence);
        }
        std::set<uint64_t> expected;
        for (auto freed = freed_.begin(); freed != freed_.end();) {
            if (mapped(freed->first)) {
                ++freed;
                continue;
            }
            expected.insert(freed->second);
            freed = freed_.erase(freed);
        }
        ASSERT_EQ(reported, expected);
    }

    [[nodiscard]] bool mapped(uint64_t page) const {
        auto mapping = device_.mappings().upper_bound(reinterpret_cast<void *>(page));
        if (mapping == device_.mappings().begin()) {
            return false;
        }
        --mapping;
        return page < reinterpret_cast<uint64_t>(mapping->first) + mapping->second;
    }

    // A refusal is never given while the cap, the limit and pinning would all have let it through, but for pinning
    // that was refused lately, which is tried again only after a while.
    void check_refusal(uint64_t size_bytes) {
        const pinned_arena::refusal &refused = arena_.last_refusal();
        ASSERT_EQ(refused.wanted_bytes, size_bytes);
        ASSERT_EQ(refused.held_bytes, owned_.size() * k_page);
        const uint64_t needed_bytes = owned_.size() * k_page + (size_bytes + k_page - 1) / k_page * k_page;
        ASSERT_GT(needed_bytes, arena_.statistics().mapped_bytes);
        if (refused.kind == pinned_arena::refusal_kind::cap) {
            ASSERT_GT(needed_bytes, refused.cap_bytes);
        } else {
            ASSERT_EQ(refused.kind, pinned_arena::refusal_kind::pinning);
            ASSERT_GT(device_.refused_map_calls, 0U);
            ASSERT_FALSE(arena_.last_pinning_status().ok());
        }
    }

    void check_statistics() {
        const pinned_arena_statistics &s = arena_.statistics();
        ASSERT_EQ(s.mapped_bytes, device_.pinned_bytes);
        ASSERT_LE(s.mapped_bytes, s.cap_bytes);
        ASSERT_LE(device_.pinned_bytes, device_.host_limit_bytes);
        ASSERT_EQ(s.slab_count, device_.mappings().size());
        ASSERT_EQ(s.block_count, live_.size());
        uint64_t requested_bytes = 0;
        uint64_t extents = 0;
        for (const live_block &block : live_) {
            requested_bytes += block.size_bytes;
            extents += arena_.extent_count(block.id);
        }
        ASSERT_EQ(s.requested_bytes, requested_bytes);
        ASSERT_EQ(s.extent_count, extents);
    }

    fake_memory_device device_;
    std::mt19937_64 random_;
    pinned_arena arena_;
    std::vector<live_block> live_;
    std::set<uint64_t> owned_;            // pages of live blocks
    std::map<uint64_t, uint64_t> freed_;  // page -> sequence of its last free
    std::vector<ticket> waits_;
    std::vector<uint64_t> log_;
    uint64_t sequence_ = 0;
};

TEST(memory_pinned_arena, holds_its_promises_under_random_traffic) {
    for (uint64_t seed = 0; seed < 150; ++seed) {
        SCOPED_TRACE(seed);
        world w(seed);
        w.run(400);
        if (::testing::Test::HasFatalFailure()) {
            return;
        }
    }
}

TEST(memory_pinned_arena, the_same_calls_give_the_same_places) {
    for (uint64_t seed = 1000; seed < 1020; ++seed) {
        world first(seed);
        world second(seed);
        first.run(300);
        second.run(300);
        EXPECT_GT(first.log().size(), 100U);
        EXPECT_EQ(first.log(), second.log());
    }
}

// Whatever the sizes, waste at the mapped peak is bounded while the arena only grows: blocks of 64 KiB and more, so
// that rounding to 4 KiB is small.
TEST(memory_pinned_arena, waste_is_bounded_for_random_sizes_and_lifetimes) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
        std::mt19937_64 random(seed);
        fake_memory_device device;
        pinned_arena arena(device, {});
        std::vector<pinned_arena::block_id> live;
        std::vector<ticket> waits;
        const uint64_t largest_bytes = 1ULL << (17 + random() % 12);
        const size_t target = 10 + random() % 300;
        for (int i = 0; i < 3000; ++i) {
            if (live.size() < target && random() % 100 < 55) {
                const uint64_t size_bytes = 65536 + random() % largest_bytes;
                const auto block = arena.allocate(size_bytes, waits);
                ASSERT_TRUE(block.has_value());
                live.push_back(*block);
            } else if (!live.empty()) {
                const size_t at = random() % live.size();
                arena.free(live[at], {});
                live[at] = live.back();
                live.pop_back();
            }
        }
        const pinned_arena_statistics &s = arena.statistics();
        EXPECT_LE(static_cast<double>(s.mapped_peak_bytes - s.requested_at_mapped_peak_bytes),
                  0.125 * static_cast<double>(s.mapped_peak_bytes))
            << "seed " << seed;
    }
}

}  // namespace
}  // namespace ebb
