// Once warm, the memory layer allocates nothing on the heap: every operator new of this program is counted.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "memory/pinned_arena.hpp"
#include "memory/staging.hpp"
#include "support/counted_new.hpp"
#include "support/fake_memory_device.hpp"
#include "support/memory_traces.hpp"
#include "support/one_ticket.hpp"

namespace ebb {
namespace {

using test::allocation_count;

class warm_allocation : public ::testing::Test {
protected:
    void run(pinned_arena &arena, const traces::step &step) {
        for (const traces::operation &operation : step.operations) {
            if (operation.size_bytes == 0) {
                arena.free(blocks_[operation.block], one_ticket(++sequence_));
                continue;
            }
            waits_.clear();
            const auto block = arena.allocate(operation.size_bytes, waits_);
            EBB_CHECK(block.has_value());
            blocks_[operation.block] = *block;
        }
    }

    fake_memory_device device_;
    std::vector<ticket> waits_;
    std::vector<pinned_arena::block_id> blocks_ = std::vector<pinned_arena::block_id>(4096);
    uint64_t sequence_ = 0;
};

TEST_F(warm_allocation, counting_works) {
    uint64_t before = allocation_count;
    std::vector<int> one(1);
    EXPECT_EQ(allocation_count - before, 1U) << one.size();
    // Each form once. Called by name, so that no compiler leaves a pair out.
    constexpr auto k_wide = std::align_val_t{64};
    before = allocation_count;
    ::operator delete(::operator new(5));
    ::operator delete[](::operator new[](5));
    ::operator delete(::operator new(5, std::nothrow), std::nothrow);
    ::operator delete[](::operator new[](5, std::nothrow), std::nothrow);
    void *wide = ::operator new(5, k_wide);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(wide) % 64, 0U);
    ::operator delete(wide, k_wide);
    ::operator delete[](::operator new[](5, k_wide), k_wide);
    ::operator delete(::operator new(5, k_wide, std::nothrow), k_wide, std::nothrow);
    ::operator delete[](::operator new[](5, k_wide, std::nothrow), k_wide, std::nothrow);
    EXPECT_EQ(allocation_count - before, 8U);
}

TEST_F(warm_allocation, arena_on_a_chain) {
    pinned_arena arena(device_, {});
    const traces::step step = traces::llama_405b();
    run(arena, step);
    run(arena, step);
    const uint64_t before = allocation_count;
    const uint64_t mapped_calls = device_.map_calls;
    const uint64_t room_calls = device_.room_calls;
    for (int i = 0; i < 20; ++i) {
        run(arena, step);
    }
    EXPECT_EQ(allocation_count - before, 0U);
    EXPECT_EQ(device_.map_calls, mapped_calls);
    EXPECT_EQ(device_.room_calls, room_calls);
}

TEST_F(warm_allocation, arena_with_sizes_that_change) {
    pinned_arena arena(device_, {});
    std::mt19937_64 random(5);
    std::vector<traces::step> steps;
    for (int i = 0; i < 40; ++i) {
        steps.push_back(traces::deepseek_v3(random));
    }
    for (int round = 0; round < 3; ++round) {
        for (const traces::step &step : steps) {
            run(arena, step);
        }
    }
    const uint64_t before = allocation_count;
    const uint64_t mapped_calls = device_.map_calls;
    for (const traces::step &step : steps) {
        run(arena, step);
    }
    EXPECT_EQ(allocation_count - before, 0U);
    EXPECT_EQ(device_.map_calls, mapped_calls);
}

TEST_F(warm_allocation, arena_that_refuses) {
    device_.pinning_limit_bytes = 64ULL << 20U;
    pinned_arena arena(device_, {});
    for (int i = 0; i < 64; ++i) {
        ASSERT_TRUE(arena.allocate(1ULL << 20U, waits_).has_value());
    }
    ASSERT_FALSE(arena.allocate(1ULL << 20U, waits_).has_value());  // its record is there for the next one
    // A try that the device refuses may allocate its words; the many refusals between tries may not.
    int without_a_try = 0;
    for (int i = 0; i < 1000; ++i) {
        const uint64_t before = allocation_count;
        const uint64_t mapped_calls = device_.map_calls;
        ASSERT_FALSE(arena.allocate(1ULL << 20U, waits_).has_value());
        if (device_.map_calls == mapped_calls) {
            ++without_a_try;
            ASSERT_EQ(allocation_count - before, 0U);
        }
    }
    EXPECT_GT(without_a_try, 980);
}

TEST_F(warm_allocation, staging) {
    staging area(device_, 64ULL << 20U);
    ASSERT_TRUE(area.take_block(64ULL << 20U).ok());
    uint64_t before = 0;
    for (int round = 0; round < 2; ++round) {
        before = allocation_count;
        std::mt19937_64 random(9);
        std::array<std::optional<staging::slot_id>, 16> slots;
        for (int i = 0; i < 20000; ++i) {
            auto &slot = slots[random() % slots.size()];
            waits_.clear();
            if (slot) {
                area.free(*slot, one_ticket(++sequence_));
                slot.reset();
            } else {
                slot = area.allocate(1 + random() % (8ULL << 20U), nullptr, waits_);
            }
        }
        for (auto &slot : slots) {
            if (slot) {
                area.free(*slot, {});
            }
        }
    }
    EXPECT_EQ(allocation_count - before, 0U);
    EXPECT_EQ(area.device_allocation_count(), 1U);
}

}  // namespace
}  // namespace ebb
