// When the heap has nothing left in the middle of a call, the memory layer is as it was before: the same calls, refused
// at every allocation that they make and made again, give what they give where none is refused.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "memory/pinned_arena.hpp"
#include "memory/staging.hpp"
#include "memory/sub_allocator.hpp"
#include "support/fake_memory_device.hpp"
#include "support/heap_limit.hpp"
#include "support/one_ticket.hpp"

namespace ebb {
namespace {

using test::despite_refusals;

ticket_set tickets(std::mt19937_64 &random, uint64_t sequence) {
    ticket_set set;
    for (uint64_t count = random() % 4; count > 0; --count) {
        EBB_CHECK(set.add(ticket_of(static_cast<uint16_t>(count), sequence)));
    }
    return set;
}

class refused_heap : public ::testing::TestWithParam<uint64_t> {
protected:
    std::mt19937_64 random_{GetParam()};
    uint64_t refused_ = 0;
};

TEST_P(refused_heap, a_sub_allocator_gives_the_same) {
    constexpr uint64_t k_granule = 512;
    constexpr uint64_t k_base = uint64_t{1} << 32U;
    auto *const base = reinterpret_cast<std::byte *>(k_base);  // never touched
    sub_allocator plain(k_granule);
    sub_allocator refused(k_granule);
    plain.add_region(base, 256 * k_granule);
    despite_refusals(refused_, [&] { return refused.add_region(base, 256 * k_granule); });
    std::vector<std::array<sub_allocator::segment_id, 2>> live;
    for (uint64_t step = 1; step <= 2000; ++step) {
        if (!live.empty() && random_() % 2 == 0) {
            const size_t at = random_() % live.size();
            const ticket_set last_uses = tickets(random_, step);
            plain.free(live[at][0], last_uses);
            refused.free(live[at][1], last_uses);
            live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
        } else {
            const uint64_t size_bytes = k_granule * (1 + random_() % 40);
            const bool largest = random_() % 8 == 0;
            const fit_rule rule = random_() % 2 == 0 ? fit_rule::best : fit_rule::oldest;
            const auto take_from = [&](sub_allocator &sub, std::vector<ticket> &waits) {
                waits = std::vector<ticket>();
                return largest ? sub.allocate_largest(size_bytes, waits) : sub.allocate(size_bytes, rule, waits);
            };
            std::vector<ticket> waits;
            std::vector<ticket> waits_despite;
            const auto piece = take_from(plain, waits);
            const auto despite = despite_refusals(refused_, [&] { return take_from(refused, waits_despite); });
            ASSERT_EQ(piece.has_value(), despite.has_value()) << "step " << step;
            ASSERT_EQ(waits, waits_despite) << "step " << step;
            if (piece.has_value()) {
                ASSERT_EQ(piece->data, despite->data) << "step " << step;
                ASSERT_EQ(piece->size_bytes, despite->size_bytes) << "step " << step;
                live.push_back({piece->segment, despite->segment});
            }
        }
        ASSERT_EQ(plain.free_bytes(), refused.free_bytes());
        ASSERT_EQ(plain.largest_free_bytes(), refused.largest_free_bytes());
    }
    for (const auto &segments : live) {
        plain.free(segments[0], {});
        refused.free(segments[1], {});
    }
    std::vector<ticket> waits;
    std::vector<ticket> waits_despite;
    plain.remove_region(0, waits);
    despite_refusals(refused_, [&] {
        waits_despite = std::vector<ticket>();
        refused.remove_region(0, waits_despite);
        return 0;
    });
    EXPECT_EQ(waits, waits_despite);
    EXPECT_EQ(refused.total_bytes(), 0U);
    EXPECT_GT(refused_, 500U);
}

// Slots of the area itself and of a pool, with and without the block.
TEST_P(refused_heap, staging_holds_what_its_slots_take_and_no_more) {
    constexpr uint64_t k_cap = 1 << 20;
    fake_memory_device device;
    {
        staging area(device, k_cap);
        std::vector<staging::slot_id> live;
        std::vector<ticket> waits;
        const auto allocate = [&](std::optional<staging::pool_id> pool) {
            const uint64_t size_bytes = 1 + random_() % (1 << 17);
            return despite_refusals(refused_, [&] {
                waits = std::vector<ticket>();
                if (!pool.has_value()) {
                    return area.allocate(size_bytes, nullptr, waits);
                }
                auto slot = area.allocate_in(*pool, size_bytes, nullptr, waits);
                if (!slot.has_value() &&
                    area.grow_pool(*pool, staging::slot_footprint_bytes(size_bytes, nullptr), 0, waits)) {
                    slot = area.allocate_in(*pool, size_bytes, nullptr, waits);
                }
                return slot;
            });
        };
        const auto run = [&](std::optional<staging::pool_id> pool) {
            for (uint64_t step = 1; step <= 300; ++step) {
                if (!live.empty() && random_() % 2 == 0) {
                    const size_t at = random_() % live.size();
                    area.free(live[at], tickets(random_, step));
                    live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
                } else if (const auto slot = allocate(pool)) {
                    live.push_back(*slot);
                }
                ASSERT_EQ(area.held_bytes(), device.device_bytes);
            }
            for (const staging::slot_id slot : live) {
                area.free(slot, {});
            }
            live.clear();
        };
        run(std::nullopt);
        EXPECT_EQ(area.used_bytes(), 0U);
        despite_refusals(refused_, [&] {
            waits = std::vector<ticket>();
            area.prepare_block(waits);
            return 0;
        });
        despite_refusals(refused_, [&] { return area.take_block(k_cap).ok(); });
        run(std::nullopt);
        const auto pool = despite_refusals(refused_, [&] { return area.open_pool(); });
        run(pool);
        area.close_pool(pool);
        EXPECT_EQ(area.used_bytes(), 0U);
        waits = std::vector<ticket>();
        EXPECT_TRUE(area.allocate(area.held_bytes(), nullptr, waits).has_value()) << "all of it is there";
    }
    EXPECT_EQ(device.device_bytes, 0U);
    EXPECT_GT(refused_, 200U);
}

// Memory of the caller's allocator: it is the area's only once the slot is there.
TEST_P(refused_heap, adopted_memory_is_counted_once) {
    fake_memory_device device;
    staging area(device, 1 << 20);
    for (uint64_t slots = 1; slots <= 20; ++slots) {
        auto *const memory = reinterpret_cast<void *>(slots << 32U);  // never touched
        const auto slot = despite_refusals(refused_, [&] { return area.adopt(memory, 1024, 600, nullptr); });
        EXPECT_EQ(area.data(slot), memory);
        EXPECT_EQ(area.used_bytes(), slots * 1024);
        EXPECT_EQ(area.held_bytes(), slots * 1024);
    }
    EXPECT_GE(refused_, 5U);
}

// Small slabs: blocks of many extents.
TEST_P(refused_heap, an_arena_loses_no_memory) {
    fake_memory_device device;
    device.pinning_call_limit_bytes = 64 << 10;
    device.pinning_limit_bytes = 4 << 20;
    pinned_arena arena(device, {.cap_bytes = 4 << 20, .max_slab_bytes = 64 << 10});
    std::vector<pinned_arena::block_id> live;
    std::vector<ticket> waits;
    uint64_t requested_bytes = 0;
    bool several_extents = false;
    for (uint64_t step = 1; step <= 2000; ++step) {
        if (!live.empty() && random_() % 2 == 0) {
            const size_t at = random_() % live.size();
            requested_bytes -= arena.block_bytes(live[at]);
            arena.free(live[at], tickets(random_, step));
            live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
        } else {
            const uint64_t size_bytes = 1 + random_() % (uint64_t{1} << 19);
            const auto block = despite_refusals(refused_, [&] {
                waits = std::vector<ticket>();
                return arena.allocate(size_bytes, waits);
            });
            if (block.has_value()) {
                live.push_back(*block);
                requested_bytes += size_bytes;
                several_extents = several_extents || arena.extent_count(*block) > 1;
            }
        }
        ASSERT_EQ(arena.statistics().requested_bytes, requested_bytes);
        ASSERT_EQ(arena.statistics().block_count, live.size());
        ASSERT_EQ(arena.statistics().mapped_bytes, device.pinned_bytes);
    }
    for (const pinned_arena::block_id block : live) {
        arena.free(block, {});
    }
    const uint64_t mapped_bytes = arena.statistics().mapped_bytes;
    waits = std::vector<ticket>();
    EXPECT_EQ(arena.trim(waits), mapped_bytes) << "all of it is free";
    EXPECT_TRUE(arena.unmap_trimmed().ok());
    EXPECT_EQ(device.pinned_bytes, 0U);
    EXPECT_EQ(arena.statistics().extent_count, 0U);
    EXPECT_TRUE(several_extents);
    EXPECT_GT(refused_, 500U);
}

INSTANTIATE_TEST_SUITE_P(seeds, refused_heap, ::testing::Range(uint64_t{0}, uint64_t{5}));

}  // namespace
}  // namespace ebb
