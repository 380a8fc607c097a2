#include "memory/staging.hpp"

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

const void *address(uint64_t value) {
    return reinterpret_cast<const void *>(value);
}

uint64_t modulo_512(const void *data) {
    return reinterpret_cast<uint64_t>(data) % 512;
}

class staging_test : public ::testing::Test {
protected:
    fake_memory_device device_;
    std::vector<ticket> waits_;
};

TEST_F(staging_test, a_footprint_is_whole_units_of_512_with_the_offset_of_the_source) {
    EXPECT_EQ(staging::slot_footprint_bytes(1, address(0)), 512U);
    EXPECT_EQ(staging::slot_footprint_bytes(512, address(4096)), 512U);
    EXPECT_EQ(staging::slot_footprint_bytes(512, address(4097)), 1024U);
    EXPECT_EQ(staging::slot_footprint_bytes(513, address(0)), 1024U);
    EXPECT_EQ(staging::slot_footprint_bytes(256, address(256)), 512U);
    EXPECT_EQ(staging::slot_footprint_bytes(257, address(256)), 1024U);
}

TEST_F(staging_test, a_slot_keeps_the_source_address_modulo_512) {
    staging area(device_, 1 << 20);
    for (const uint64_t source : {0ULL, 8ULL, 64ULL, 500ULL, 511ULL, 4096ULL + 16}) {
        const auto slot = area.allocate(1000, address(source), waits_);
        ASSERT_TRUE(slot.has_value());
        EXPECT_EQ(modulo_512(area.data(*slot)), source % 512);
        EXPECT_EQ(area.size_bytes(*slot), 1000U);
    }
}

TEST_F(staging_test, while_recording_memory_is_taken_as_needed_and_never_beyond_the_cap) {
    staging area(device_, 8192);
    const auto first = area.allocate(4096, address(0), waits_);
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(area.held_bytes(), 4096U);
    EXPECT_FALSE(area.allocate(4097, address(0), waits_).has_value());
    EXPECT_EQ(area.held_bytes(), 4096U);
    ASSERT_TRUE(area.allocate(4096, address(0), waits_).has_value());
    EXPECT_EQ(area.held_bytes(), 8192U);
    EXPECT_EQ(device_.device_peak_bytes, 8192U);
    EXPECT_EQ(area.used_bytes(), 8192U);
    area.free(*first, one_ticket(3));
    EXPECT_EQ(area.used_bytes(), 4096U);
    EXPECT_EQ(area.held_bytes(), 8192U);
    ASSERT_TRUE(area.allocate(100, address(0), waits_).has_value());
    EXPECT_THAT(waits_, ElementsAre(ticket{1, 3}));
    EXPECT_EQ(area.device_allocation_count(), 2U);
    EXPECT_EQ(area.used_peak_bytes(), 8192U);
    EXPECT_EQ(area.held_peak_bytes(), 8192U);
}

TEST_F(staging_test, of_the_free_slots_the_one_freed_first_is_taken_whatever_its_size) {
    staging area(device_, 1 << 20);
    std::vector<staging::slot_id> slots;
    std::vector<std::byte *> data;
    for (const uint64_t size_bytes : {2048U, 8192U, 4096U}) {
        slots.push_back(*area.allocate(size_bytes, address(0), waits_));
        data.push_back(area.data(slots.back()));
    }
    area.free(slots[1], one_ticket(1));
    area.free(slots[2], one_ticket(2));
    area.free(slots[0], one_ticket(3));
    EXPECT_EQ(area.data(*area.allocate(2048, address(0), waits_)), data[1]);
    EXPECT_EQ(area.data(*area.allocate(6144, address(0), waits_)), data[1] + 2048);
    EXPECT_EQ(area.data(*area.allocate(2048, address(0), waits_)), data[2]);
    EXPECT_THAT(waits_, ElementsAre(ticket{1, 1}, ticket{1, 1}, ticket{1, 2}));
}

TEST_F(staging_test, a_device_without_room_is_no_slot_not_an_error) {
    device_.device_limit_bytes = 4096;
    staging area(device_, 1 << 20);
    ASSERT_TRUE(area.allocate(4096, address(0), waits_).has_value());
    EXPECT_FALSE(area.allocate(1, address(0), waits_).has_value());
}

TEST_F(staging_test, absurd_sizes_are_no_slot) {
    staging area(device_, 1 << 20);
    EXPECT_FALSE(area.allocate(~uint64_t{0}, address(1), waits_).has_value());
    EXPECT_FALSE(area.allocate(~uint64_t{0} - 4096, address(1), waits_).has_value());
}

// A region has less than 2^31 units of 512 bytes; whatever the caps are, nothing larger is asked for.
TEST_F(staging_test, sizes_beyond_what_a_region_can_have_are_no_slot) {
    constexpr uint64_t k_tib = uint64_t{1} << 40U;
    staging area(device_, 16 * k_tib);
    EXPECT_FALSE(area.allocate(k_tib, address(0), waits_).has_value());
    EXPECT_EQ(device_.alloc_calls, 0U);
    EXPECT_TRUE(area.allocate(k_tib - 512, address(0), waits_).has_value());
    staging block(device_, 16 * k_tib);
    EXPECT_TRUE(block.take_block(2 * k_tib).ok());
    EXPECT_EQ(block.held_bytes(), k_tib - 512);
    staging lent(device_, 0);
    lent.lend_block(reinterpret_cast<void *>(uintptr_t{4096}), 2 * k_tib);
    EXPECT_EQ(lent.cap_bytes(), k_tib - 512);
}

TEST_F(staging_test, taking_the_block_gives_back_what_was_learned_and_holds_the_size_in_all) {
    staging area(device_, 1 << 20);
    const auto kept = *area.allocate(4096, address(0), waits_);
    const auto other = *area.allocate(8192, address(0), waits_);
    area.free(other, one_ticket(9));
    area.prepare_block(waits_);
    EXPECT_THAT(waits_, ElementsAre(ticket{1, 9}));
    EXPECT_EQ(device_.free_calls, 0U);  // not before the caller has waited
    EXPECT_EQ(area.held_bytes(), 12288U);
    ASSERT_TRUE(area.take_block(65536).ok());
    EXPECT_TRUE(area.block_taken());
    EXPECT_EQ(device_.free_calls, 1U);
    EXPECT_EQ(area.held_bytes(), 65536U);
    EXPECT_EQ(device_.device_bytes, 65536U);
    EXPECT_EQ(area.size_bytes(kept), 4096U);
    // Afterwards there is no allocation from the device, whatever the cap says.
    EXPECT_FALSE(area.allocate(65536, address(0), waits_).has_value());
    EXPECT_TRUE(area.allocate(65536 - 4096, address(0), waits_).has_value());
    EXPECT_EQ(area.device_allocation_count(), 3U);
}

TEST_F(staging_test, the_block_is_never_larger_than_the_cap) {
    staging area(device_, 10000);
    ASSERT_TRUE(area.take_block(1 << 20).ok());
    EXPECT_EQ(area.held_bytes(), 9728U);
}

TEST_F(staging_test, a_block_that_the_device_refuses_is_named_and_what_is_held_still_works) {
    staging area(device_, 1 << 20);
    const auto slot = *area.allocate(4096, address(0), waits_);
    device_.device_limit_bytes = 8192;
    const status taken = area.take_block(65536);
    EXPECT_EQ(taken.code(), code::out_of_device_memory);
    EXPECT_THAT(taken.text(), HasSubstr("61440"));
    EXPECT_TRUE(area.block_taken());
    area.free(slot, {});
    EXPECT_TRUE(area.allocate(4096, address(0), waits_).has_value());
}

TEST_F(staging_test, a_lent_block_is_used_and_never_given_to_the_device) {
    alignas(512) static std::byte memory[4096];
    {
        staging area(device_, 1 << 20);
        area.lend_block(memory, sizeof memory);
        EXPECT_TRUE(area.block_taken());
        EXPECT_EQ(area.cap_bytes(), 4096U);
        EXPECT_EQ(area.held_bytes(), 4096U);
        const auto slot = area.allocate(4000, address(16), waits_);
        ASSERT_TRUE(slot.has_value());
        EXPECT_EQ(area.data(*slot), memory + 16);
        EXPECT_FALSE(area.allocate(1, address(0), waits_).has_value());
        area.prepare_block(waits_);
        EXPECT_TRUE(area.take_block(1 << 20).ok());
    }
    EXPECT_EQ(device_.alloc_calls, 0U);
    EXPECT_EQ(device_.free_calls, 0U);
}

TEST_F(staging_test, a_lent_block_that_is_not_aligned_loses_only_its_edges) {
    alignas(512) static std::byte memory[4096];
    staging area(device_, 1 << 20);
    area.lend_block(memory + 100, sizeof memory - 100);
    EXPECT_EQ(area.held_bytes(), 3584U);
    EXPECT_EQ(area.data(*area.allocate(512, address(0), waits_)), memory + 512);
}

TEST_F(staging_test, adopted_memory_counts_while_its_slot_lives_and_is_handed_back) {
    alignas(512) static std::byte memory[2048];
    staging area(device_, 1 << 20);
    const auto slot = area.adopt(memory, sizeof memory, 1500, address(40));
    EXPECT_EQ(area.data(slot), memory + 40);
    EXPECT_EQ(area.held_bytes(), 2048U);
    EXPECT_EQ(area.used_bytes(), 2048U);
    const staging::handed_back back = area.free(slot, one_ticket(2));
    EXPECT_EQ(back.memory, memory);
    EXPECT_EQ(back.footprint_bytes, 2048U);
    EXPECT_EQ(area.held_bytes(), 0U);
    EXPECT_EQ(area.used_bytes(), 0U);
    EXPECT_EQ(device_.alloc_calls, 0U);
    EXPECT_EQ(area.free(*area.allocate(512, address(0), waits_), {}).memory, nullptr);
    EXPECT_THAT(waits_, IsEmpty());
}

TEST_F(staging_test, a_cap_below_what_is_held_is_what_is_held) {
    staging area(device_, 1 << 20);
    ASSERT_TRUE(area.allocate(4096, address(0), waits_).has_value());
    area.set_cap(512);
    EXPECT_EQ(area.cap_bytes(), 4096U);
    EXPECT_FALSE(area.allocate(1, address(0), waits_).has_value());
    area.set_cap(8192);
    EXPECT_TRUE(area.allocate(4096, address(0), waits_).has_value());
}

TEST_F(staging_test, destruction_gives_everything_back_once) {
    {
        staging area(device_, 1 << 20);
        area.free(*area.allocate(4096, address(0), waits_), {});
        area.prepare_block(waits_);
        ASSERT_TRUE(area.allocate(512, address(0), waits_).has_value());
    }
    EXPECT_EQ(device_.device_bytes, 0U);
    EXPECT_EQ(device_.free_calls, 2U);
}

using staging_death_test = staging_test;

TEST_F(staging_death_test, misuse_stops_the_program) {
    staging area(device_, 1 << 20);
    const auto slot = *area.allocate(4096, address(0), waits_);
    EXPECT_DEATH(static_cast<void>(area.allocate(0, address(0), waits_)), "size_bytes");
    area.free(slot, {});
    EXPECT_DEATH(area.free(slot, {}), "size_bytes");
    EXPECT_DEATH(static_cast<void>(area.data(slot)), "size_bytes");
}

}  // namespace
}  // namespace ebb
