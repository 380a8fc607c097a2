// Random training runs on a device on which things go wrong, by seed: memory and copies are refused, waits and marks
// fail, the device breaks for good. Whatever a call returns, it says what; what is handed out has the right content;
// nothing is reused too early; every deleter runs once.
#include <gtest/gtest.h>

#include "sim_training.hpp"

namespace ebb::test {
namespace {

constexpr uint64_t k_seeds = 120;

struct fault_totals {
    uint64_t saves = 0, reads = 0, unread = 0, errors = 0, with_errors = 0;
};

fault_totals run_with_faults(uint64_t seeds, const std::function<void(fault_device &, uint64_t seed)> &spoil) {
    fault_totals totals;
    for (uint64_t seed = 0; seed < seeds; ++seed) {
        const sim_world world = sim_world_maker(seed).make();
        sim_training_options how;
        how.may_fail = true;
        how.before_steps = [&](sim_stack &stack) { spoil(stack.fault(), seed); };
        const sim_outcome run = sim_training(world, seed, how).run();
        EXPECT_EQ(run.violation_count, 0U) << "seed " << seed << ": " << to_string(run.violations.front());
        EXPECT_EQ(run.wrong_deletes, 0U) << "seed " << seed;
        totals.saves += run.saves;
        totals.reads += run.reads;
        totals.unread += run.unread;
        totals.errors += run.errors;
        totals.with_errors += run.errors != 0 ? 1 : 0;
        if (::testing::Test::HasFailure()) {
            ADD_FAILURE() << "seed " << seed << ", " << run.errors << " errors, the first: " << run.first_error;
            break;
        }
    }
    return totals;
}

// Memory that is refused is no error: what does not fit is kept, or read into the caller's own memory.
TEST(faulty_training, refused_memory_loses_nothing) {
    const fault_totals totals = run_with_faults(k_seeds, [](fault_device &fault, uint64_t seed) {
        fault.refuse_at_random(call_kind::alloc_device, 0.3, seed);
        fault.refuse_at_random(call_kind::map_host, 0.3, seed);
    });
    EXPECT_GT(totals.reads, k_seeds * 50);
    EXPECT_EQ(totals.unread, 0U);
}

TEST(faulty_training, refused_copies_are_told) {
    const fault_totals totals = run_with_faults(
        k_seeds, [](fault_device &fault, uint64_t seed) { fault.refuse_at_random(call_kind::copy, 0.02, seed); });
    EXPECT_GT(totals.with_errors, k_seeds / 2);
    EXPECT_GT(totals.reads, 20 * totals.unread);
}

TEST(faulty_training, refused_orders_are_told) {
    for (const call_kind kind :
         {call_kind::record_event, call_kind::wait_event, call_kind::event_done, call_kind::synchronize_event}) {
        const double chance = kind == call_kind::synchronize_event ? 0.5 : 0.01;  // that one is called once or twice
        const fault_totals totals = run_with_faults(k_seeds / 3, [kind, chance](fault_device &fault, uint64_t seed) {
            fault.refuse_at_random(kind, chance, seed);
        });
        EXPECT_GT(totals.with_errors, 0U) << call_kind_name(kind);
        EXPECT_GT(totals.reads, 10 * totals.unread) << call_kind_name(kind);
    }
}

TEST(faulty_training, everything_at_once) {
    const fault_totals totals = run_with_faults(k_seeds, [](fault_device &fault, uint64_t seed) {
        for (uint64_t kind = 0; kind < k_call_kinds; ++kind) {
            fault.refuse_at_random(static_cast<call_kind>(kind), 0.005, seed);
        }
    });
    EXPECT_GT(totals.with_errors, k_seeds / 2);
}

TEST(faulty_training, one_copy_after_the_other_is_refused) {
    const sim_world world = sim_world_maker(10).make();
    for (uint64_t nth = 1; nth <= 60; ++nth) {
        sim_training_options how;
        how.may_fail = true;
        how.before_steps = [nth](sim_stack &stack) { stack.fault().refuse(call_kind::copy, nth); };
        const sim_outcome run = sim_training(world, 1, how).run();
        ASSERT_EQ(run.violation_count, 0U) << nth << ": " << to_string(run.violations.front());
        ASSERT_EQ(run.wrong_deletes, 0U) << nth;
        ASSERT_NE(run.errors, 0U) << nth;
    }
}

// From then on each call fails and says so; what was read before was right, and nothing is torn down too early.
TEST(faulty_training, a_device_that_breaks_for_good) {
    uint64_t broken = 0;
    const fault_totals totals = run_with_faults(k_seeds, [&broken](fault_device &fault, uint64_t seed) {
        fault.break_after(1 + seed * 7919 % 3000);
        ++broken;
    });
    EXPECT_EQ(broken, k_seeds);
    EXPECT_GT(totals.with_errors, k_seeds / 3);
    EXPECT_GT(totals.unread, k_seeds);
}

}  // namespace
}  // namespace ebb::test
