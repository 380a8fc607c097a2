// Random training runs with the real core on the simulated device in checking mode: nothing may touch what is not
// ordered, and everything that comes back must be what was saved.
#include <gtest/gtest.h>

#include "sim_training.hpp"

namespace ebb::test {
namespace {

constexpr uint64_t k_seeds = 300;

TEST(checked_training, no_violation_in_any_world) {
    uint64_t reads = 0, prefetched = 0, on_demand = 0, forwarded = 0, no_slot = 0, recomputed = 0, planned = 0;
    for (uint64_t seed = 0; seed < k_seeds; ++seed) {
        const sim_world world = sim_world_maker(seed).make();
        const sim_outcome run = sim_training(world, seed).run();
        ASSERT_EQ(run.violation_count, 0U) << "seed " << seed << ": " << to_string(run.violations.front());
        ASSERT_EQ(run.wrong_deletes, 0U) << "seed " << seed;
        ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
        reads += run.reads;
        prefetched += run.stats.reloads_prefetched;
        on_demand += run.stats.reloads_on_demand;
        forwarded += run.stats.forwarded_count;
        no_slot += run.stats.no_slot_count;
        recomputed += run.recomputed;
        planned += run.planned;
    }
    // The worlds reach what they are meant to reach.
    EXPECT_GT(reads, k_seeds * 50);
    EXPECT_GT(prefetched, k_seeds * 10);
    EXPECT_GT(on_demand, k_seeds * 5);
    EXPECT_GT(forwarded, k_seeds * 5);
    EXPECT_GT(no_slot, k_seeds / 2);
    EXPECT_GT(recomputed, k_seeds * 2);
    EXPECT_GT(planned, k_seeds);
}

TEST(checked_training, the_same_seed_is_the_same_run) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
        const sim_world world = sim_world_maker(seed).make();
        const sim_outcome once = sim_training(world, seed).run();
        const sim_outcome again = sim_training(world, seed).run();
        ASSERT_NE(once.log_hash, 0U);
        ASSERT_EQ(once.log_hash, again.log_hash) << "seed " << seed;
        ASSERT_NE(once.log_hash, sim_training(world, seed + 1).run().log_hash) << "seed " << seed;
    }
}

// The checker itself: each wait of the core that is left out must show, unless it was not needed. Not needed is a wait
// that other waits imply; that never shows. What else is not found orders a reuse that this run does not come to
// (memory that nobody takes again before the end, a slot whose next copy is far behind anyway), or needs a coincidence
// that these few seeds do not have.
TEST(checked_training, a_wait_that_is_left_out_is_found) {
    constexpr uint64_t k_worlds = 50;
    constexpr uint64_t k_mutants = 6;
    constexpr uint64_t k_tries = 12;
    constexpr uint64_t k_most_waits = 400;  // small runs: many of them
    uint64_t mutants = 0, found = 0, redundant = 0;
    for (uint64_t seed = 0; seed < k_worlds; ++seed) {
        sim_world world = sim_world_maker(seed).make();
        world.machine.host_runs_ahead = true;  // otherwise no wait is ever needed
        world.machine.host_call_ps = 50'000;
        world.steps = 4;
        std::mt19937_64 random(seed);
        const uint64_t waits = sim_training(world, seed).run().waits;
        for (uint64_t mutant = 0; mutant < k_mutants && waits != 0 && waits < k_most_waits; ++mutant) {
            const uint64_t nth = 1 + random() % waits;
            bool seen = false, needed = false;
            for (uint64_t tries = 0; tries < k_tries && !seen; ++tries) {
                sim_training_options how;
                how.before_steps = [nth](sim_stack &stack) { stack.leave_out_wait(nth); };
                const sim_outcome run = sim_training(world, seed + 1000 * tries, how).run();
                seen = run.violation_count != 0;
                needed = needed || !run.left_out_was_redundant;
                ASSERT_FALSE(seen && run.left_out_was_redundant)
                    << "world " << seed << ", wait " << nth << ": " << to_string(run.violations.front());
            }
            ++mutants;
            found += seen ? 1 : 0;
            redundant += needed ? 0 : 1;
        }
    }
    RecordProperty("mutants", static_cast<int>(mutants));
    RecordProperty("found", static_cast<int>(found));
    RecordProperty("redundant", static_cast<int>(redundant));
    EXPECT_GE(found * 100, mutants * 60) << found << " of " << mutants;
    EXPECT_GE(found * 100, (mutants - redundant) * 75) << found << " of " << mutants - redundant << " that were needed";
}

}  // namespace
}  // namespace ebb::test
