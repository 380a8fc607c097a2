// Counts every heap allocation of the program, on all threads.
#include <atomic>
#include <cstdlib>
#include <new>

#include "contract_fixture.hpp"

namespace {
std::atomic<uint64_t> allocations{0};

void *counted(std::size_t size_bytes, std::size_t alignment) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    const std::size_t rounded = (size_bytes + alignment - 1) / alignment * alignment;
    void *data = alignment <= alignof(std::max_align_t) ? std::malloc(size_bytes == 0 ? 1 : size_bytes)
                                                        : std::aligned_alloc(alignment, rounded);
    if (data == nullptr) {
        throw std::bad_alloc();
    }
    return data;
}
}  // namespace

void *operator new(std::size_t size_bytes) {
    return counted(size_bytes, 1);
}
void *operator new[](std::size_t size_bytes) {
    return counted(size_bytes, 1);
}
void *operator new(std::size_t size_bytes, std::align_val_t alignment) {
    return counted(size_bytes, static_cast<std::size_t>(alignment));
}
void *operator new[](std::size_t size_bytes, std::align_val_t alignment) {
    return counted(size_bytes, static_cast<std::size_t>(alignment));
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
void operator delete(void *data, std::align_val_t) noexcept {
    std::free(data);
}
void operator delete[](void *data, std::align_val_t) noexcept {
    std::free(data);
}
void operator delete(void *data, std::size_t, std::align_val_t) noexcept {
    std::free(data);
}
void operator delete[](void *data, std::size_t, std::align_val_t) noexcept {
    std::free(data);
}

namespace ebb {
namespace {

class hot_path_contract : public contract {
protected:
    static constexpr uint64_t k_bytes = 64 * 1024;
    static constexpr int k_calls_ahead = 200;

    // As a training step would: many calls ahead of the streams, then a wait.
    bool step() {
        bool all_ok = true;
        const auto check = [&](const status &done) { all_ok = all_ok && done.ok(); };
        for (int call = 0; call < k_calls_ahead; ++call) {
            check(dev().copy(in_, copy_direction::h2d, there_, here_, k_bytes));
            check(dev().record_event(event_, in_));
            check(dev().wait_event(out_, event_));
            check(dev().copy(out_, copy_direction::d2h, back_, there_, k_bytes));
            check(dev().checksum(out_, back_, k_bytes, &sum_));
            check(dev().record_event(timed_, out_));
            check(dev().wait_event(in_, timed_));
            check(dev().event_done(timed_).why());
        }
        check(dev().synchronize_event(timed_));
        check(dev().elapsed_ns(timed_, timed_).why());
        return all_ok;
    }

    stream_id in_ = new_stream(stream_role::h2d);
    stream_id out_ = new_stream(stream_role::d2h);
    event_id event_ = new_event();
    event_id timed_ = new_event(event_kind::timed);
    unsigned char *there_ = new_device_memory(k_bytes);
    unsigned char *here_ = new_host_memory(k_bytes);
    unsigned char *back_ = new_host_memory(k_bytes);
    uint64_t sum_ = 0;
};

TEST_P(hot_path_contract, allocates_nothing_once_warm) {
    stack_.quieten();
    // The longest queue that a step can build is built by holding the streams up with work of their own.
    for (int round = 0; round < 20; ++round) {
        ASSERT_TRUE(step());
    }
    unsigned char *large = new_host_memory(k_contract_capacity_bytes / 4);
    unsigned char *large_there = new_device_memory(k_contract_capacity_bytes / 4);
    const auto hold_up = [&] {
        for (int i = 0; i < 4; ++i) {
            ok(dev().copy(in_, copy_direction::h2d, large_there, large, k_contract_capacity_bytes / 4));
        }
    };
    hold_up();
    ASSERT_TRUE(step());
    hold_up();
    ASSERT_TRUE(step());
    const uint64_t before = allocations.load();
    bool all_ok = true;
    for (int round = 0; round < 10; ++round) {
        all_ok = step() && all_ok;
    }
    const uint64_t after = allocations.load();
    EXPECT_TRUE(all_ok);
    EXPECT_EQ(after - before, 0U);
}

TEST_P(hot_path_contract, the_count_sees_an_allocation) {
    const uint64_t before = allocations.load();
    const std::vector<uint64_t> allocated(100, 1);
    EXPECT_GT(allocations.load() - before, 0U) << allocated.size();
}

EBB_CONTRACT_FOR_ALL_DEVICES(hot_path_contract);

}  // namespace
}  // namespace ebb
