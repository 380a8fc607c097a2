// Waste of pinned memory at published sizes: (mapped - requested) / mapped at the peak is at most 12.5 %.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "memory/pinned_arena.hpp"
#include "support/fake_memory_device.hpp"
#include "support/memory_traces.hpp"

namespace ebb {
namespace {

constexpr double k_gib = 1024.0 * 1024.0 * 1024.0;

class arena_waste : public ::testing::Test {
protected:
    void run(const traces::step &step) {
        std::vector<pinned_arena::block_id> blocks(step.block_count);
        for (const traces::operation &operation : step.operations) {
            if (operation.size_bytes == 0) {
                arena_.free(blocks[operation.block], {});
                continue;
            }
            const auto block = arena_.allocate(operation.size_bytes, waits_);
            ASSERT_TRUE(block.has_value());
            blocks[operation.block] = *block;
            check_extents(*block, operation.size_bytes);
        }
        ASSERT_EQ(arena_.statistics().block_count, 0U);
        ASSERT_EQ(arena_.statistics().requested_bytes, 0U);
    }

    // M10: every extent lies inside one registration.
    void check_extents(pinned_arena::block_id block, uint64_t size_bytes) {
        uint64_t sum_bytes = 0;
        arena_.for_each_extent(block, [&](const pinned_arena::extent &extent) {
            auto mapping = device_.mappings().upper_bound(extent.data);
            ASSERT_NE(mapping, device_.mappings().begin());
            --mapping;
            ASSERT_LE(extent.data + extent.size_bytes, static_cast<std::byte *>(mapping->first) + mapping->second);
            sum_bytes += extent.size_bytes;
        });
        ASSERT_EQ(sum_bytes, size_bytes);
        most_extents_ = std::max(most_extents_, arena_.extent_count(block));
    }

    // Also printed, as the trace's figures in the test log.
    [[nodiscard]] double waste(const char *name) const {
        const pinned_arena_statistics &s = arena_.statistics();
        const double ratio = static_cast<double>(s.mapped_peak_bytes - s.requested_at_mapped_peak_bytes) /
                             static_cast<double>(s.mapped_peak_bytes);
        std::printf(
            "%s: mapped %.2f GiB in %llu slabs, requested %.2f GiB, waste %.2f %%, extents of a block at most %u\n",
            name, static_cast<double>(s.mapped_peak_bytes) / k_gib, static_cast<unsigned long long>(s.slab_count),
            static_cast<double>(s.requested_peak_bytes) / k_gib, 100.0 * ratio, most_extents_);
        return ratio;
    }

    fake_memory_device device_;
    pinned_arena arena_{device_, {}};
    std::vector<ticket> waits_;
    uint32_t most_extents_ = 0;
};

TEST_F(arena_waste, llama_405b_all_saved_tensors) {
    for (int step = 0; step < 4; ++step) {
        run(traces::llama_405b());
    }
    EXPECT_EQ(arena_.statistics().requested_peak_bytes, 348160ULL * 16384 * 126);
    EXPECT_LE(waste("llama_405b"), 0.125);
    EXPECT_LE(device_.map_calls, 800U);  // slabs of 1 GiB once the arena is large
}

TEST_F(arena_waste, deepseek_v3_with_routing_that_changes_sizes) {
    std::mt19937_64 random(20260710);
    for (int step = 0; step < 40; ++step) {
        run(traces::deepseek_v3(random));
    }
    EXPECT_GT(static_cast<double>(arena_.statistics().requested_peak_bytes), 145.0 * k_gib);
    EXPECT_LE(waste("deepseek_v3"), 0.125);
    EXPECT_LE(most_extents_, 16U);
}

TEST_F(arena_waste, deepseek_v3_even_routing_is_the_published_total) {
    std::mt19937_64 random(1);
    run(traces::deepseek_v3(random, 0.0));
    EXPECT_EQ(arena_.statistics().requested_peak_bytes, 61ULL * (2436ULL << 20U));
    EXPECT_LE(waste("deepseek_v3_even"), 0.125);
}

TEST_F(arena_waste, blocks_of_653_mib) {
    for (int step = 0; step < 4; ++step) {
        run(traces::equal_blocks(32, 653ULL << 20U));
    }
    EXPECT_LE(waste("32_x_653_mib"), 0.125);
}

// M3.
TEST_F(arena_waste, sizes_just_above_powers_of_two) {
    std::mt19937_64 random(3);
    for (int step = 0; step < 8; ++step) {
        run(traces::just_above_powers_of_two(random, 20000, 400));
    }
    EXPECT_LE(waste("just_above_powers_of_two"), 0.125);
}

// M5: growing never holds old and new at once.
TEST_F(arena_waste, a_block_that_grows_takes_little_more_than_itself) {
    const uint64_t size_bytes = 1000ULL << 20U;
    for (const uint64_t bytes : {size_bytes, size_bytes + size_bytes / 10}) {
        const auto block = arena_.allocate(bytes, waits_);
        ASSERT_TRUE(block.has_value());
        check_extents(*block, bytes);
        arena_.free(*block, {});
    }
    EXPECT_LT(device_.pinned_peak_bytes, size_bytes + size_bytes / 5);
    EXPECT_LE(waste("n_then_1.1_n"), 0.125);
}

}  // namespace
}  // namespace ebb
