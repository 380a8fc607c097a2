// Once warm, the memory layer allocates nothing on the heap: every operator new of this program is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <random>
#include <vector>

#include "memory/pinned_arena.hpp"
#include "memory/staging.hpp"
#include "support/fake_memory_device.hpp"
#include "support/memory_traces.hpp"
#include "support/one_ticket.hpp"

namespace {
std::atomic<uint64_t> heap_allocations{0};

void *counted(std::size_t size_bytes) {
    heap_allocations.fetch_add(1, std::memory_order_relaxed);
    if (void *data = std::malloc(size_bytes == 0 ? 1 : size_bytes)) {
        return data;
    }
    throw std::bad_alloc();
}
}  // namespace

void *operator new(std::size_t size_bytes) {
    return counted(size_bytes);
}
void *operator new[](std::size_t size_bytes) {
    return counted(size_bytes);
}
void *operator new(std::size_t size_bytes, std::align_val_t alignment) {
    heap_allocations.fetch_add(1, std::memory_order_relaxed);
    const auto align = static_cast<std::size_t>(alignment);
    if (void *data = std::aligned_alloc(align, (size_bytes + align - 1) / align * align)) {
        return data;
    }
    throw std::bad_alloc();
}
void operator delete(void *data, std::align_val_t) noexcept {
    std::free(data);
}
void operator delete(void *data, std::size_t, std::align_val_t) noexcept {
    std::free(data);
}
void operator delete(void *data) noexcept {
    std::free(data);
}
void operator delete[](void *data) noexcept {
    std::free(data);
}
void operator delete(void *data, std::size_t) noexcept {
    std::free(data);
}
void operator delete[](void *data, std::size_t) noexcept {
    std::free(data);
}

namespace ebb {
namespace {

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
    const uint64_t before = heap_allocations;
    std::vector<int> one(1);
    EXPECT_EQ(heap_allocations - before, 1U) << one.size();
}

TEST_F(warm_allocation, arena_on_a_chain) {
    pinned_arena arena(device_, {});
    const traces::step step = traces::llama_405b();
    run(arena, step);
    run(arena, step);
    const uint64_t before = heap_allocations;
    const uint64_t mapped_calls = device_.map_calls;
    const uint64_t room_calls = device_.room_calls;
    for (int i = 0; i < 20; ++i) {
        run(arena, step);
    }
    EXPECT_EQ(heap_allocations - before, 0U);
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
    const uint64_t before = heap_allocations;
    const uint64_t mapped_calls = device_.map_calls;
    for (const traces::step &step : steps) {
        run(arena, step);
    }
    EXPECT_EQ(heap_allocations - before, 0U);
    EXPECT_EQ(device_.map_calls, mapped_calls);
}

TEST_F(warm_allocation, arena_that_refuses) {
    device_.pinning_limit_bytes = 64ULL << 20U;
    pinned_arena arena(device_, {});
    for (int i = 0; i < 64; ++i) {
        ASSERT_TRUE(arena.allocate(1ULL << 20U, waits_).has_value());
    }
    // A try that the device refuses may allocate its words; the many refusals between tries may not.
    int without_a_try = 0;
    for (int i = 0; i < 1000; ++i) {
        const uint64_t before = heap_allocations;
        const uint64_t mapped_calls = device_.map_calls;
        ASSERT_FALSE(arena.allocate(1ULL << 20U, waits_).has_value());
        if (device_.map_calls == mapped_calls) {
            ++without_a_try;
            ASSERT_EQ(heap_allocations - before, 0U);
        }
    }
    EXPECT_GT(without_a_try, 980);
}

TEST_F(warm_allocation, staging) {
    staging area(device_, 64ULL << 20U);
    ASSERT_TRUE(area.take_block(64ULL << 20U).ok());
    uint64_t before = 0;
    for (int round = 0; round < 2; ++round) {
        before = heap_allocations;
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
    EXPECT_EQ(heap_allocations - before, 0U);
    EXPECT_EQ(area.device_allocation_count(), 1U);
}

}  // namespace
}  // namespace ebb
