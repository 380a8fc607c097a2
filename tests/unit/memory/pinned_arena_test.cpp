#include "memory/pinned_arena.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "support/fake_memory_device.hpp"
#include "support/one_ticket.hpp"

namespace ebb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr uint64_t k_page = 4096;
constexpr uint64_t k_mib = 1ULL << 20U;

class pinned_arena_test : public ::testing::Test {
protected:
    static std::vector<pinned_arena::extent> extents(const pinned_arena &arena, pinned_arena::block_id block) {
        std::vector<pinned_arena::extent> all;
        arena.for_each_extent(block, [&](const pinned_arena::extent &extent) { all.push_back(extent); });
        return all;
    }

    fake_memory_device device_;
    std::vector<ticket> waits_;
};

TEST_F(pinned_arena_test, a_block_has_its_exact_size_and_a_page_aligned_address) {
    pinned_arena arena(device_, {});
    for (const uint64_t size_bytes : {1ULL, 4095ULL, 4096ULL, 4097ULL, 1234567ULL}) {
        const auto block = arena.allocate(size_bytes, waits_);
        ASSERT_TRUE(block.has_value());
        EXPECT_EQ(arena.block_bytes(*block), size_bytes);
        ASSERT_EQ(arena.extent_count(*block), 1U);
        const auto all = extents(arena, *block);
        ASSERT_EQ(all.size(), 1U);
        EXPECT_EQ(all[0].size_bytes, size_bytes);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(all[0].data) % k_page, 0U);
    }
    EXPECT_EQ(arena.statistics().block_count, 5U);
    EXPECT_EQ(arena.statistics().requested_bytes, 1U + 4095 + 4096 + 4097 + 1234567);
}

TEST_F(pinned_arena_test, a_freed_block_is_reused_behind_its_tickets_without_mapping_again) {
    pinned_arena arena(device_, {});
    const auto first = *arena.allocate(k_mib, waits_);
    auto *const data = extents(arena, first)[0].data;
    EXPECT_THAT(waits_, IsEmpty());
    arena.free(first, one_ticket(8));
    const auto second = *arena.allocate(k_mib, waits_);
    EXPECT_EQ(extents(arena, second)[0].data, data);
    EXPECT_THAT(waits_, ElementsAre(ticket{1, 8}));
    EXPECT_EQ(device_.map_calls, 1U);
}

TEST_F(pinned_arena_test, where_no_single_range_fits_a_block_is_made_of_extents) {
    pinned_arena arena(device_, {});
    std::vector<pinned_arena::block_id> blocks;
    for (int i = 0; i < 4; ++i) {
        blocks.push_back(*arena.allocate(4 * k_mib, waits_));
    }
    const uint64_t mapped_bytes = arena.statistics().mapped_bytes;
    arena.free(blocks[0], one_ticket(1));
    arena.free(blocks[2], one_ticket(3));
    const auto wide = arena.allocate(7 * k_mib + 5, waits_);
    ASSERT_TRUE(wide.has_value());
    EXPECT_EQ(arena.statistics().mapped_bytes, mapped_bytes);
    const auto all = extents(arena, *wide);
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(arena.extent_count(*wide), 2U);
    EXPECT_EQ(all[0].size_bytes, 4 * k_mib);
    EXPECT_EQ(all[1].size_bytes, 3 * k_mib + 5);
    EXPECT_THAT(waits_, UnorderedElementsAre(ticket{1, 1}, ticket{1, 3}));
    EXPECT_EQ(arena.statistics().extent_count, 4U);
    arena.free(*wide, one_ticket(4));
    EXPECT_EQ(arena.statistics().extent_count, 2U);
}

// M10, also where the system puts registrations side by side.
TEST_F(pinned_arena_test, no_extent_crosses_two_registrations) {
    pinned_arena arena(device_, {0, k_mib});
    ASSERT_TRUE(arena.reserve(10 * k_mib + 1).ok());
    EXPECT_EQ(device_.map_calls, 11U);
    const auto block = arena.allocate(10 * k_mib + 1, waits_);
    ASSERT_TRUE(block.has_value());
    EXPECT_EQ(arena.extent_count(*block), 11U);
    uint64_t sum_bytes = 0;
    for (const auto &extent : extents(arena, *block)) {
        auto mapping = device_.mappings().upper_bound(extent.data);
        ASSERT_NE(mapping, device_.mappings().begin());
        --mapping;
        EXPECT_LE(extent.data + extent.size_bytes, static_cast<std::byte *>(mapping->first) + mapping->second);
        sum_bytes += extent.size_bytes;
    }
    EXPECT_EQ(sum_bytes, 10 * k_mib + 1);
}

TEST_F(pinned_arena_test, a_growth_step_is_never_larger_than_the_device_or_the_option_says) {
    pinned_arena arena(device_, {0, 4 * k_mib + 100});
    ASSERT_TRUE(arena.reserve(64 * k_mib).ok());
    for (int i = 0; i < 100; ++i) {
        ASSERT_TRUE(arena.allocate(3 * k_mib, waits_).has_value());
    }
    for (const auto &[data, size_bytes] : device_.mappings()) {
        EXPECT_LE(size_bytes, 4 * k_mib);
    }
}

TEST_F(pinned_arena_test, a_block_larger_than_a_growth_step_gets_a_slab_of_its_own) {
    pinned_arena arena(device_, {0, k_mib});
    const auto block = arena.allocate(5 * k_mib + 1, waits_);
    ASSERT_TRUE(block.has_value());
    EXPECT_EQ(arena.extent_count(*block), 1U);
    EXPECT_EQ(arena.statistics().mapped_bytes, 5 * k_mib + k_page);
}

TEST_F(pinned_arena_test, where_so_large_a_slab_is_refused_the_block_lies_in_several) {
    device_.pinning_call_limit_bytes = 2 * k_mib;
    pinned_arena arena(device_, {0, 2 * k_mib});
    const auto block = arena.allocate(5 * k_mib, waits_);
    ASSERT_TRUE(block.has_value());
    EXPECT_EQ(arena.extent_count(*block), 3U);
    EXPECT_EQ(arena.statistics().mapped_bytes, 5 * k_mib);
}

TEST_F(pinned_arena_test, registrations_stay_few_as_the_arena_grows_by_small_blocks) {
    pinned_arena arena(device_, {});
    for (int i = 0; i < 16384; ++i) {
        ASSERT_TRUE(arena.allocate(k_mib, waits_).has_value());
    }
    EXPECT_LE(device_.map_calls, 150U);
    EXPECT_LE(arena.statistics().mapped_bytes, 16384 * k_mib * 17 / 16);
}

// ---- Refusals ------------------------------------------------------------------------------------------------

TEST_F(pinned_arena_test, the_cap_is_reached_exactly_and_the_refusal_gives_the_smallest_that_would_do) {
    pinned_arena arena(device_, {10 * k_mib, 0});
    std::vector<pinned_arena::block_id> blocks;
    for (int i = 0; i < 9; ++i) {
        blocks.push_back(*arena.allocate(k_mib, waits_));
    }
    EXPECT_FALSE(arena.allocate(k_mib + 1, waits_).has_value());
    const pinned_arena::refusal refused = arena.last_refusal();
    EXPECT_EQ(refused.kind, pinned_arena::refusal_kind::cap);
    EXPECT_EQ(refused.wanted_bytes, k_mib + 1);
    EXPECT_EQ(refused.held_bytes, 9 * k_mib);
    EXPECT_EQ(refused.cap_bytes, 10 * k_mib);
    EXPECT_TRUE(arena.allocate(k_mib, waits_).has_value());
    EXPECT_EQ(arena.statistics().mapped_bytes, 10 * k_mib);
    EXPECT_LE(device_.pinned_peak_bytes, 10 * k_mib);
}

TEST_F(pinned_arena_test, under_the_cap_any_number_of_extents_is_better_than_a_refusal) {
    pinned_arena arena(device_, {64 * k_mib, 0});
    std::vector<pinned_arena::block_id> blocks;
    for (int i = 0; i < 512; ++i) {
        blocks.push_back(*arena.allocate(128 * 1024, waits_));
    }
    ASSERT_EQ(arena.statistics().mapped_bytes, 64 * k_mib);
    for (size_t i = 0; i < blocks.size(); i += 2) {
        arena.free(blocks[i], {});
    }
    const auto wide = arena.allocate(32 * k_mib, waits_);
    ASSERT_TRUE(wide.has_value());
    EXPECT_GT(arena.extent_count(*wide), 200U);
    EXPECT_FALSE(arena.allocate(1, waits_).has_value());
}

TEST_F(pinned_arena_test, without_a_cap_the_room_at_create_is_the_cap) {
    device_.host_limit_bytes = 5 * k_mib;
    pinned_arena arena(device_, {});
    EXPECT_EQ(arena.statistics().cap_bytes, 5 * k_mib);
    EXPECT_TRUE(arena.allocate(5 * k_mib, waits_).has_value());
    EXPECT_FALSE(arena.allocate(1, waits_).has_value());
    EXPECT_EQ(arena.last_refusal().kind, pinned_arena::refusal_kind::cap);
    EXPECT_EQ(arena.last_refusal().cap_bytes, 5 * k_mib);
}

TEST_F(pinned_arena_test, growth_stops_at_the_host_limit_even_when_the_cap_is_larger) {
    device_.host_limit_bytes = 5 * k_mib;
    pinned_arena arena(device_, {100 * k_mib, 0});
    ASSERT_TRUE(arena.allocate(3 * k_mib, waits_).has_value());
    EXPECT_FALSE(arena.allocate(2 * k_mib + 1, waits_).has_value());
    EXPECT_EQ(arena.last_refusal().kind, pinned_arena::refusal_kind::cap);
    EXPECT_EQ(arena.last_refusal().cap_bytes, 5 * k_mib);
    EXPECT_EQ(device_.refused_map_calls, 0U);  // never tried
    EXPECT_TRUE(arena.allocate(2 * k_mib, waits_).has_value());
}

// M8.
TEST_F(pinned_arena_test, refused_pinning_is_reported_as_that_and_smaller_blocks_go_on) {
    device_.pinning_limit_bytes = 256 * k_mib;
    pinned_arena arena(device_, {});
    ASSERT_TRUE(arena.allocate(200 * k_mib, waits_).has_value());
    EXPECT_FALSE(arena.allocate(100 * k_mib, waits_).has_value());
    EXPECT_EQ(arena.last_refusal().kind, pinned_arena::refusal_kind::pinning);
    EXPECT_EQ(arena.last_refusal().wanted_bytes, 100 * k_mib);
    EXPECT_EQ(arena.last_refusal().held_bytes, 200 * k_mib);
    EXPECT_EQ(arena.last_pinning_status().code(), code::out_of_host_memory);
    EXPECT_THAT(arena.last_pinning_status().text(), HasSubstr("refused pinning"));
    EXPECT_TRUE(arena.allocate(56 * k_mib, waits_).has_value());
}

TEST_F(pinned_arena_test, a_refused_step_falls_back_to_the_exact_need) {
    pinned_arena arena(device_, {});
    ASSERT_TRUE(arena.allocate(160 * k_mib, waits_).has_value());
    device_.pinning_limit_bytes = 161 * k_mib;  // a step would be 10 MiB
    EXPECT_TRUE(arena.allocate(k_mib, waits_).has_value());
    EXPECT_EQ(arena.statistics().mapped_bytes, 161 * k_mib);
}

TEST_F(pinned_arena_test, refused_pinning_is_not_tried_again_on_every_allocation) {
    device_.pinning_limit_bytes = 10 * k_mib;
    pinned_arena arena(device_, {});
    ASSERT_TRUE(arena.allocate(10 * k_mib, waits_).has_value());
    const uint64_t mapped_calls = device_.map_calls;
    const uint64_t room_calls = device_.room_calls;
    for (int i = 0; i < 10000; ++i) {
        EXPECT_FALSE(arena.allocate(k_mib, waits_).has_value());
        EXPECT_EQ(arena.last_refusal().kind, pinned_arena::refusal_kind::pinning);
    }
    EXPECT_LE(device_.map_calls - mapped_calls, 16U);
    EXPECT_LE(device_.room_calls - room_calls, 16U);
    // A smaller one is worth a try, and when the system has room again that is found out.
    device_.pinning_limit_bytes = 20 * k_mib;
    EXPECT_TRUE(arena.allocate(k_mib / 2, waits_).has_value());
    int tries = 0;
    while (!arena.allocate(k_mib, waits_).has_value()) {
        ASSERT_LE(++tries, 10000);
    }
}

TEST_F(pinned_arena_test, memory_given_back_ends_the_wait_for_another_try) {
    device_.pinning_limit_bytes = 10 * k_mib;
    pinned_arena arena(device_, {});
    const auto block = *arena.allocate(4 * k_mib, waits_);
    ASSERT_TRUE(arena.allocate(6 * k_mib, waits_).has_value());
    for (int i = 0; i < 100; ++i) {
        EXPECT_FALSE(arena.allocate(3 * k_mib, waits_).has_value());
    }
    arena.free(block, {});
    arena.trim(waits_);
    ASSERT_TRUE(arena.unmap_trimmed().ok());
    EXPECT_TRUE(arena.allocate(3 * k_mib, waits_).has_value());
    EXPECT_EQ(arena.statistics().mapped_bytes, 9 * k_mib);
}

TEST_F(pinned_arena_test, a_free_range_serves_while_growth_is_refused) {
    device_.pinning_limit_bytes = 10 * k_mib;
    pinned_arena arena(device_, {});
    const auto block = *arena.allocate(10 * k_mib, waits_);
    EXPECT_FALSE(arena.allocate(k_mib, waits_).has_value());
    arena.free(block, {});
    EXPECT_TRUE(arena.allocate(k_mib, waits_).has_value());
}

TEST_F(pinned_arena_test, absurd_sizes_are_refused_with_numbers) {
    pinned_arena arena(device_, {64 * k_mib, 0});
    ASSERT_TRUE(arena.allocate(k_mib, waits_).has_value());
    for (const uint64_t size_bytes : {~uint64_t{0}, ~uint64_t{0} - 4095, uint64_t{1} << 63U}) {
        EXPECT_FALSE(arena.allocate(size_bytes, waits_).has_value());
        EXPECT_EQ(arena.last_refusal().wanted_bytes, size_bytes);
        EXPECT_EQ(arena.last_refusal().held_bytes, k_mib);
    }
    EXPECT_EQ(device_.map_calls, 1U);
}

// A slab has less than 2^31 pages: a growth beyond that is refused like one beyond the cap.
TEST_F(pinned_arena_test, a_growth_beyond_what_a_slab_can_have_is_refused_as_a_cap) {
    constexpr uint64_t k_tib = uint64_t{1} << 40U;
    pinned_arena arena(device_, {32 * k_tib, 16 * k_tib});
    ASSERT_TRUE(arena.allocate(k_mib, waits_).has_value());
    EXPECT_FALSE(arena.allocate(8 * k_tib, waits_).has_value());
    EXPECT_EQ(arena.last_refusal().kind, pinned_arena::refusal_kind::cap);
    EXPECT_EQ(arena.last_refusal().wanted_bytes, 8 * k_tib);
    EXPECT_EQ(arena.last_refusal().cap_bytes, k_mib + 8 * k_tib - k_page);
    EXPECT_EQ(device_.map_calls, 1U);
    EXPECT_TRUE(arena.allocate(8 * k_tib - k_page, waits_).has_value());
}

// ---- Reserve and trim ----------------------------------------------------------------------------------------

TEST_F(pinned_arena_test, reserved_memory_serves_later_blocks) {
    pinned_arena arena(device_, {});
    ASSERT_TRUE(arena.reserve(10 * k_mib - 1).ok());
    ASSERT_TRUE(arena.reserve(k_mib).ok());
    EXPECT_EQ(arena.statistics().mapped_bytes, 10 * k_mib);
    EXPECT_EQ(arena.statistics().slab_count, 1U);
    ASSERT_TRUE(arena.allocate(10 * k_mib, waits_).has_value());
    EXPECT_EQ(device_.map_calls, 1U);
}

// M9.
TEST_F(pinned_arena_test, a_refused_reserve_says_host_how_much_the_cap_and_what_to_do) {
    pinned_arena arena(device_, {10 * k_mib, 0});
    const status refused = arena.reserve(11 * k_mib);
    EXPECT_EQ(refused.code(), code::out_of_host_memory);
    EXPECT_THAT(refused.text(), HasSubstr("host"));
    EXPECT_THAT(refused.text(), HasSubstr("11534336"));
    EXPECT_THAT(refused.text(), HasSubstr("10485760"));
    EXPECT_THAT(refused.text(), HasSubstr("EBB_HOST_BYTES"));

    device_.host_limit_bytes = 5 * k_mib;
    EXPECT_THAT(arena.reserve(6 * k_mib).text(), HasSubstr("control group"));
    device_.host_limit_bytes = fake_memory_device::k_unlimited;
    device_.pinning_limit_bytes = 0;
    EXPECT_THAT(arena.reserve(4 * k_mib).text(), HasSubstr("refused pinning"));
}

TEST_F(pinned_arena_test, trim_takes_idle_slabs_out_and_gives_them_back_after_the_wait) {
    pinned_arena arena(device_, {0, k_mib});
    ASSERT_TRUE(arena.reserve(3 * k_mib).ok());
    const auto keep = *arena.allocate(k_mib, waits_);
    const auto drop = *arena.allocate(2 * k_mib, waits_);
    arena.free(drop, one_ticket(6));
    EXPECT_EQ(arena.trim(waits_), 2 * k_mib);
    EXPECT_THAT(waits_, ElementsAre(ticket{1, 6}, ticket{1, 6}));
    EXPECT_EQ(device_.unmap_calls, 0U);
    EXPECT_EQ(arena.statistics().mapped_bytes, 3 * k_mib);
    ASSERT_TRUE(arena.unmap_trimmed().ok());
    EXPECT_EQ(device_.unmap_calls, 2U);
    EXPECT_EQ(arena.statistics().mapped_bytes, k_mib);
    EXPECT_EQ(arena.statistics().mapped_peak_bytes, 3 * k_mib);
    EXPECT_EQ(arena.statistics().slab_count, 1U);
    ASSERT_TRUE(arena.unmap_trimmed().ok());
    EXPECT_EQ(device_.unmap_calls, 2U);
    arena.free(keep, {});
    ASSERT_TRUE(arena.allocate(2 * k_mib, waits_).has_value());
}

// M7: each registration is undone once; the fake device stops the program on a second time.
TEST_F(pinned_arena_test, destruction_unmaps_every_slab_once) {
    {
        pinned_arena arena(device_, {0, k_mib});
        arena.free(*arena.allocate(5 * k_mib, waits_), {});
        const auto block = arena.allocate(k_mib, waits_);
        ASSERT_TRUE(block.has_value());
        arena.trim(waits_);
    }
    EXPECT_EQ(device_.unmap_calls, device_.map_calls);
    EXPECT_THAT(device_.mappings(), IsEmpty());
}

TEST_F(pinned_arena_test, waste_is_taken_at_the_mapped_peak) {
    pinned_arena arena(device_, {});
    ASSERT_TRUE(arena.reserve(100 * k_mib).ok());
    const auto first = *arena.allocate(60 * k_mib, waits_);
    const auto second = *arena.allocate(30 * k_mib, waits_);
    arena.free(first, {});
    const pinned_arena_statistics &s = arena.statistics();
    EXPECT_EQ(s.mapped_peak_bytes, 100 * k_mib);
    EXPECT_EQ(s.requested_at_mapped_peak_bytes, 90 * k_mib);
    EXPECT_EQ(s.requested_peak_bytes, 90 * k_mib);
    EXPECT_EQ(s.requested_bytes, 30 * k_mib);
    arena.free(second, {});
}

using pinned_arena_death_test = pinned_arena_test;

TEST_F(pinned_arena_death_test, misuse_stops_the_program) {
    pinned_arena arena(device_, {});
    const auto block = *arena.allocate(k_mib, waits_);
    arena.free(block, {});
    EXPECT_DEATH(arena.free(block, {}), "size_bytes");
    EXPECT_DEATH(static_cast<void>(arena.block_bytes(block + 1)), "size");
    EXPECT_DEATH(static_cast<void>(arena.allocate(0, waits_)), "size_bytes");
}

}  // namespace
}  // namespace ebb
