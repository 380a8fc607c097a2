#include <atomic>
#include <thread>

#include "contract_fixture.hpp"

namespace ebb {
namespace {

using thread_contract = contract;

TEST_P(thread_contract, every_call_may_come_from_any_thread) {
    constexpr uint64_t k_threads = 4;
    constexpr int k_rounds = 60;
    constexpr uint64_t k_bytes = 64 * 1024;
    const unsigned char *source = new_filled(k_bytes + k_threads * k_rounds, 1);
    unsigned char *back = new_host_memory(k_bytes * k_threads);
    std::atomic<int> wrong{0};
    const auto check = [&](const status &done) { wrong += done.ok() ? 0 : 1; };
    const auto work = [&](uint64_t thread) {
        const stream_id in = dev().create_stream(stream_role::h2d).value();
        const event_id there_now = dev().create_event(event_kind::timed).value();
        for (int round = 0; round < k_rounds; ++round) {
            const stream_id out = dev().create_stream(stream_role::d2h).value();
            const event_id read = dev().create_event(event_kind::timed).value();
            void *there = dev().alloc_device(k_bytes).value();
            const unsigned char *from = source + thread * k_rounds + static_cast<uint64_t>(round);
            unsigned char *to = back + thread * k_bytes;
            check(dev().copy(in, copy_direction::h2d, there, from, k_bytes));
            check(dev().record_event(there_now, in));
            check(dev().wait_event(out, there_now));
            check(dev().copy(out, copy_direction::d2h, to, there, k_bytes));
            check(dev().record_event(read, out));
            check(dev().synchronize_event(read));
            check(dev().elapsed_ns(there_now, read).why());
            wrong += dev().event_done(read).value() ? 0 : 1;
            wrong += same(to, from, k_bytes) ? 0 : 1;
            wrong += dev().memory().free_bytes < dev().memory().capacity_bytes ? 0 : 1;
            check(dev().free_device(there, k_bytes));
            check(dev().destroy_event(read));
            check(dev().destroy_stream(out));
        }
        check(dev().destroy_event(there_now));
        check(dev().destroy_stream(in));
    };
    std::vector<std::thread> threads;
    for (uint64_t thread = 0; thread < k_threads; ++thread) {
        threads.emplace_back(work, thread);
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(wrong.load(), 0);
}

// One thread records and the others wait for, ask about and wait on the same event.
TEST_P(thread_contract, an_event_may_be_recorded_and_waited_for_at_once) {
    constexpr int k_rounds = 2000;
    const event_id shared = new_event();
    const stream_id recorder = new_stream();
    ok(dev().record_event(shared, recorder));
    std::atomic<int> wrong{0};
    const auto check = [&](const status &done) { wrong += done.ok() ? 0 : 1; };
    std::vector<std::thread> threads;
    threads.emplace_back([&] {
        for (int round = 0; round < k_rounds; ++round) {
            check(dev().record_event(shared, recorder));
        }
    });
    for (int waiter = 0; waiter < 2; ++waiter) {
        threads.emplace_back([&, stream = new_stream()] {
            for (int round = 0; round < k_rounds; ++round) {
                check(dev().wait_event(stream, shared));
                check(dev().event_done(shared).why());
                if (round % 50 == 0) {
                    check(dev().synchronize_event(shared));
                }
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(wrong.load(), 0);
    finish(recorder);
}

EBB_CONTRACT_FOR_ALL_DEVICES(thread_contract);

}  // namespace
}  // namespace ebb
