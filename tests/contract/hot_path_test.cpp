// Once warm, a device allocates nothing on the heap: every operator new of this program is counted.
#include "contract_fixture.hpp"
#include "counted_new.hpp"

namespace ebb {
namespace {

using test::allocation_count;

class hot_path_contract : public contract {
protected:
    static constexpr uint64_t k_bytes = 64 * 1024;
    static constexpr int k_calls_ahead = 200;
    static constexpr uint64_t k_rounds = 10;

    // Many calls ahead of the streams, as a training step would.
    bool enqueue_step() {
        bool all_ok = true;
        const auto check = [&](const status &done) { all_ok = all_ok && done.ok(); };
        for (int call = 0; call < k_calls_ahead; ++call) {
            check(dev().copy(in_, copy_direction::h2d, there_, here_, k_bytes));
            check(dev().record_event(event_, in_));
            check(dev().wait_event(out_, event_));
            check(dev().copy(out_, copy_direction::d2h, back_, there_, k_bytes));
            check(dev().checksum(out_, back_, k_bytes, sum_));
            check(dev().record_event(timed_, out_));
            check(dev().wait_event(in_, timed_));
            check(dev().event_done(timed_).why());
        }
        return all_ok;
    }
    bool finish_step() {
        bool all_ok = dev().synchronize_event(timed_).ok() && dev().elapsed_ns(timed_, timed_).ok();
        const result<void *> block = dev().alloc_device(k_bytes);
        return all_ok && block.ok() && dev().free_device(block.value(), k_bytes).ok();
    }

    stream_id in_ = new_stream(stream_role::h2d);
    stream_id out_ = new_stream(stream_role::d2h);
    event_id event_ = new_event();
    event_id timed_ = new_event(event_kind::timed);
    unsigned char *there_ = new_device_memory(k_bytes);
    unsigned char *here_ = new_host_memory(k_bytes);
    unsigned char *back_ = new_host_memory(k_bytes);
    uint64_t *sum_ = new_sums(1, 0);
};

TEST_P(hot_path_contract, allocates_nothing_once_warm) {
    stack_.quieten();
    // The longest queues that a step can build: both streams stand while it is enqueued.
    for (int round = 0; round < 2; ++round) {
        const std::function<void()> let_in_go = stack_.block ? stack_.block(in_) : [] {};
        const std::function<void()> let_out_go = stack_.block ? stack_.block(out_) : [] {};
        ASSERT_TRUE(enqueue_step());
        let_in_go();
        let_out_go();
        ASSERT_TRUE(finish_step());
    }
    const uint64_t expected = GetParam().heap_allocations_per_block * k_rounds;
    const uint64_t before = allocation_count.load();
    bool all_ok = true;
    for (uint64_t round = 0; round < k_rounds; ++round) {
        all_ok = enqueue_step() && finish_step() && all_ok;
    }
    const uint64_t after = allocation_count.load();
    EXPECT_TRUE(all_ok);
    EXPECT_EQ(after - before, expected);
}

TEST_P(hot_path_contract, the_count_sees_an_allocation) {
    const uint64_t before = allocation_count.load();
    const std::vector<uint64_t> allocated(100, 1);
    EXPECT_GT(allocation_count.load() - before, 0U) << allocated.size();
}

INSTANTIATE_TEST_SUITE_P(devices, hot_path_contract, ::testing::ValuesIn(contract_cases_that_warm_up()),
                         [](const auto &tested) { return tested.param.name; });

}  // namespace
}  // namespace ebb
