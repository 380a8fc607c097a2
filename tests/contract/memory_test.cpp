#include <algorithm>

#include "contract_fixture.hpp"

namespace ebb {
namespace {

using memory_contract = contract;

TEST_P(memory_contract, device_memory_is_aligned_and_counted) {
    const uint64_t free_at_first = dev().memory().free_bytes;
    std::vector<held_memory> blocks;
    uint64_t sum = 0;
    for (const uint64_t size_bytes : {uint64_t{1}, uint64_t{511}, uint64_t{4097}, uint64_t{1} << 20U}) {
        blocks.push_back({value_of(dev().alloc_device(size_bytes)), size_bytes});
        EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back().data) % 512, 0U);
        sum += size_bytes;
        EXPECT_LE(dev().memory().free_bytes, free_at_first - sum + std::min(sum, memory_slack_bytes()));
    }
    EXPECT_LE(free_at_first, dev().memory().capacity_bytes);
    for (const held_memory &block : blocks) {
        ok(dev().free_device(block.data, block.size_bytes));
    }
    EXPECT_GE(dev().memory().free_bytes + memory_slack_bytes(), free_at_first);
    EXPECT_LE(dev().memory().free_bytes, free_at_first + memory_slack_bytes());
}

TEST_P(memory_contract, all_of_the_capacity_can_be_had_and_no_byte_more) {
    const device_memory memory = dev().memory();
    const uint64_t half = memory.free_bytes / 2;
    const uint64_t one_too_many = memory.free_bytes - half + 1 + memory_slack_bytes();
    const uint64_t rest = memory.free_bytes - half - memory_slack_bytes();
    void *first = value_of(dev().alloc_device(half));
    const result<void *> too_much = dev().alloc_device(one_too_many);
    refused(too_much.why(), code::out_of_device_memory);
    for (const uint64_t number : {one_too_many, half, memory.capacity_bytes}) {
        EXPECT_NE(too_much.why().text().find(std::to_string(number)), std::string::npos) << too_much.why().text();
    }
    void *second = value_of(dev().alloc_device(rest));
    refused(dev().alloc_device(1 + 2 * memory_slack_bytes()).why(), code::out_of_device_memory);
    ok(dev().free_device(first, half));
    ok(dev().free_device(second, rest));
}

TEST_P(memory_contract, other_sizes_fit_where_others_were_freed) {
    const uint64_t all = dev().memory().free_bytes - memory_slack_bytes();
    for (const uint64_t parts : {uint64_t{2}, uint64_t{3}, uint64_t{1}, uint64_t{5}}) {
        const uint64_t part = all / parts / 512 * 512;
        std::vector<void *> blocks;
        for (uint64_t i = 0; i < parts; ++i) {
            blocks.push_back(value_of(dev().alloc_device(part)));
        }
        for (void *block : blocks) {
            ok(dev().free_device(block, part));
        }
    }
    EXPECT_GE(dev().memory().free_bytes, all);
    EXPECT_LE(dev().memory().free_bytes, all + 2 * memory_slack_bytes());
}

TEST_P(memory_contract, absurd_and_empty_sizes_are_refused) {
    refused(dev().alloc_device(0).why(), code::invalid_argument);
    refused(dev().map_host(0).why(), code::invalid_argument);
    for (const uint64_t size_bytes : {~uint64_t{0}, ~uint64_t{0} - 511, uint64_t{1} << 63U}) {
        refused(dev().alloc_device(size_bytes).why(), code::out_of_device_memory);
        refused(dev().map_host(size_bytes).why(), code::out_of_host_memory);
    }
}

TEST_P(memory_contract, what_is_freed_must_be_what_was_allocated) {
    void *block = value_of(dev().alloc_device(4096));
    refused(dev().free_device(nullptr, 4096), code::invalid_argument);
    refused(dev().free_device(static_cast<char *>(block) + 512, 4096), code::invalid_argument);
    refused(dev().free_device(block, 4095), code::invalid_argument);
    ok(dev().free_device(block, 4096));
    refused(dev().free_device(block, 4096), code::invalid_argument);
}

TEST_P(memory_contract, what_is_unmapped_must_be_what_was_mapped) {
    void *mapped = value_of(dev().map_host(8192));
    refused(dev().unmap_host(nullptr, 8192), code::invalid_argument);
    refused(dev().unmap_host(static_cast<char *>(mapped) + 4096, 4096), code::invalid_argument);
    refused(dev().unmap_host(mapped, 4096), code::invalid_argument);
    ok(dev().unmap_host(mapped, 8192));
    refused(dev().unmap_host(mapped, 8192), code::invalid_argument);
}

TEST_P(memory_contract, pinned_memory_is_page_aligned_and_zero) {
    for (const uint64_t size_bytes : {uint64_t{1}, uint64_t{4097}, (uint64_t{3} << 20U) + 5}) {
        const unsigned char *mapped = new_host_memory(size_bytes);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(mapped) % 4096, 0U);
        for (uint64_t at = 0; moves_bytes() && at < size_bytes; ++at) {
            ASSERT_EQ(mapped[at], 0) << "at " << at;
        }
    }
}

TEST_P(memory_contract, pinned_memory_beyond_the_room_is_refused_by_name) {
    const uint64_t room = dev().host_room_bytes();
    ASSERT_LT(room, uint64_t{1} << 60U);
    // The room of a real system moves while we ask: twice as much is too much in any case.
    const uint64_t wanted = 2 * room + (uint64_t{1} << 30U);
    const result<void *> mapped = dev().map_host(wanted);
    refused(mapped.why(), code::out_of_host_memory);
    EXPECT_NE(mapped.why().text().find(std::to_string(wanted)), std::string::npos) << mapped.why().text();
}

TEST_P(memory_contract, memory_freed_under_a_running_copy_stays_until_the_copy_is_over) {
    constexpr uint64_t k_bytes = 8ULL << 20U;
    const stream_id stream = new_stream(stream_role::d2h);
    const unsigned char *source = new_filled(k_bytes, 7);
    unsigned char *back = new_host_memory(k_bytes);
    void *block = value_of(dev().alloc_device(k_bytes));
    ok(dev().copy(stream, copy_direction::h2d, block, source, k_bytes));
    ok(dev().copy(stream, copy_direction::d2h, back, block, k_bytes));
    ok(dev().free_device(block, k_bytes));
    if (moves_bytes()) {
        // Another size that needs the room drives the freed block out.
        const uint64_t all = dev().memory().free_bytes - memory_slack_bytes();
        void *other = value_of(dev().alloc_device(all));
        ok(dev().free_device(other, all));
    }
    finish(stream);
    EXPECT_TRUE(same(source, back, k_bytes));
}

EBB_CONTRACT_FOR_ALL_DEVICES(memory_contract);

}  // namespace
}  // namespace ebb
