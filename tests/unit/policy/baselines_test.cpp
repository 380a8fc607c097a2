// Each baseline on steps that can be followed by hand: what its row of the comparison, or its source, says it does.
#include <gtest/gtest.h>

#include <algorithm>

#include "baseline_chain.hpp"
#include "policy/baseline.hpp"

namespace ebb::baselines {
namespace {

// Times in units, memory in MiB.
struct played {
    double step = 0, exposed = 0;
    uint64_t peak = 0, host = 0;
    bool out_of_memory = false;
};

played play(const std::unique_ptr<baseline> &what, const built_step &step, const sim_machine &machine,
            uint64_t count = 0, uint64_t window = 0, uint64_t budget_bytes = k_no_limit) {
    const result<baseline_result> r = what->play(step, machine, budget_bytes, {"", count, window});
    EXPECT_TRUE(r.ok()) << r.why().text();
    if (!r.ok()) {
        return {};
    }
    const baseline_result &v = r.value();
    return {v.step_ns / k_unit_ns, v.exposed_ns / k_unit_ns, v.device_peak_bytes / k_mib, v.host_peak_bytes / k_mib,
            v.out_of_memory};
}

constexpr double k_close = 1e-4;

TEST(synchronous, each_copy_blocks_compute_and_frees_at_once) {
    const played p = play(make_synchronous(), plain_chain(5, 2, 4), machine_with(3, 2));
    EXPECT_NEAR(p.step, 5 * (2 + 4) + 5 * (3 + 2), k_close);
    EXPECT_NEAR(p.exposed, 5 * (3 + 2), k_close);
    EXPECT_EQ(p.peak, 1U);
    EXPECT_EQ(p.host, 5U);
}

// One stream carries both directions: layer 3's copy in waits until 4 and 5 have gone out (at 19), although nobody
// needs those copies. The two youngest are handed back. What comes after 3 is copied in when it is asked for.
TEST(hook_stash, a_reload_waits_behind_copies_out_and_none_is_ahead) {
    const built_step step = plain_chain(6, 1, 1);
    const played p = play(make_hook_stash(), step, machine_with(3, 1), 2);
    EXPECT_NEAR(p.step, 27, k_close);
    EXPECT_EQ(p.peak, 3U);  // the stash, and the one that is being computed
    // With room for all of them nothing is copied in.
    EXPECT_NEAR(play(make_hook_stash(), step, machine_with(3, 1), 6).step, 12, k_close);
}

// Windows of one layer: compute stands at each edge until the layer before has gone out (at 4, 7, 10), or come in.
TEST(double_buffer, both_streams_wait_for_each_other_at_the_edges) {
    const played p = play(make_double_buffer(), plain_chain(4, 1, 1), machine_with(3, 2), 3);
    EXPECT_NEAR(p.step, 17, k_close);
    EXPECT_EQ(p.peak, 2U);
    // With half of the layers a window is two of them, and 3 hide in 4: but the first window begins a layer late, and
    // so does, mirrored, the last.
    EXPECT_NEAR(play(make_double_buffer(), plain_chain(6, 2, 2), machine_with(3, 3), 3).exposed, 1 + 1, k_close);
}

// Also when the copy is not what is short of time: the copies of the next window cannot begin before the edge.
TEST(double_buffer, a_window_is_not_left_early) {
    std::vector<chain_layer> layers(4, {{{1, 1, 1}}, 0, 0});
    layers[1].pieces[0].mib = 8;
    const played p = play(make_double_buffer(), chain_step(layers), machine_with(1, 1), 3);
    // 0 has gone at 2; 1 goes from 2 to 10, and the edge behind layer 2 waits; 2 from 10 to 11 behind layer 3.
    // Back: 2 comes from 11 to 12, 1 from 12 to 20, 0 from 20 to 21.
    EXPECT_NEAR(p.step, 22, k_close);
}

TEST(static_window, holds_as_many_equal_layers_as_are_not_offloaded) {
    for (const uint64_t offloaded : {1U, 2U, 3U, 5U, 7U}) {
        const played p = play(make_static_window(), plain_chain(8, 1, 2), machine_with(2, 1), offloaded);
        EXPECT_EQ(p.peak, 8 - offloaded) << offloaded;
    }
}

// n = 2 of 4: memory of layer 0 is free at layer 2, whenever the copy was done; 1 comes in when 2's backward begins.
TEST(static_window, memory_is_free_at_a_fixed_later_layer) {
    const played p = play(make_static_window(), plain_chain(4, 1, 1), machine_with(3, 1), 2);
    EXPECT_NEAR(p.step, 12, k_close);
    EXPECT_EQ(p.peak, 2U);
    // Fast links gain no memory.
    EXPECT_EQ(play(make_static_window(), plain_chain(4, 1, 1), machine_with(0.1, 0.1), 2).peak, 2U);
}

// The last one stays; its backward brings the one before it, and so on: never more than one ahead.
TEST(module_groups, one_group_ahead_last_in_first_out) {
    const played p = play(make_module_groups(), plain_chain(4, 1, 2), machine_with(1, 3), 0, 1);
    EXPECT_NEAR(p.step, 15, k_close);
    EXPECT_NEAR(p.exposed, 3, k_close);
}

// Its memory is the allocator's to find: with plenty nobody waits, with little compute waits for copies.
TEST(module_groups, memory_is_left_to_the_allocator) {
    const built_step step = plain_chain(6, 1, 4);
    const played loose = play(make_module_groups(), step, machine_with(3, 1), 0, 3);
    const played tight = play(make_module_groups(), step, machine_with(3, 1), 0, 3, 4 * k_mib);
    EXPECT_NEAR(loose.exposed, 0, k_close);
    EXPECT_EQ(loose.peak, 5U);
    // Layer 5 begins at 5 and takes the memory of layer 1, which is stored at 7.
    EXPECT_NEAR(tight.exposed, 2, k_close);
    EXPECT_EQ(tight.peak, 4U);
    EXPECT_FALSE(tight.out_of_memory);
    // One group at a time by hand: layer 1 is not committed before 0 is stored, nor 2 before 1.
    const played limited = play(make_module_groups(), step, machine_with(3, 1), 1, 3);
    EXPECT_NEAR(limited.exposed, 2 + 2, k_close);
    EXPECT_EQ(limited.peak, 4U);
}

// Saved after 1 of 3, the copy takes 4: 2 are left when its iteration ends. Back: it is there 2 after its iteration
// began, and its first user comes after 0.5.
TEST(xla_own_iteration, exposes_what_is_left_of_a_copy) {
    const built_step step = chain_step({3, {{{1, 1, 2}}, 2, 0.5}});
    const played p = play(make_xla_own_iteration(), step, machine_with(4, 2));
    EXPECT_NEAR(p.exposed, 3 * (4 - 2) + 3 * (2 - 0.5), k_close);
    EXPECT_EQ(p.peak, 1U);
}

TEST(xla_own_iteration, reloads_come_in_the_order_of_their_use) {
    const built_step step = chain_step({2, {{{1, 1, 3}, {1, 4, 3}}, 8, 0}});
    // Used first is the one of 4 MiB: it waits for its own copy only; the other one hides behind its use.
    EXPECT_NEAR(play(make_xla_own_iteration(), step, machine_with(1, 1)).exposed, 2 * 4, k_close);
}

TEST(xla_pipelined, exposes_nothing_where_copies_are_shorter_than_iterations_and_holds_one_iteration_more) {
    const built_step step = chain_step({6, {{{1, 1, 2}, {1, 1, 2}}, 2, 0}}, 8);
    const sim_machine machine = machine_with(2, 2);
    const played alone = play(make_xla_own_iteration(), step, machine);
    const played pipelined = play(make_xla_pipelined(), step, machine);
    EXPECT_GT(alone.exposed, 0);
    EXPECT_NEAR(pipelined.exposed, 0, k_close);
    EXPECT_EQ(pipelined.peak, alone.peak + 2);
}

TEST(xla_pipelined, a_limit_of_copies_at_once_bounds_what_is_held) {
    const built_step step = chain_step({6, {{{1, 1, 2}, {1, 1, 2}, {1, 1, 2}}, 1, 0}}, 8);
    const played one = play(make_xla_pipelined(), step, machine_with(1, 1), 1);
    const played any = play(make_xla_pipelined(), step, machine_with(1, 1), 0);
    EXPECT_LT(one.peak, any.peak);
    EXPECT_GE(one.step, any.step);
}

// Predicted to be stored at 6, needed at 7, so it is offloaded; asked for two modules ahead, at 5, it is not stored
// yet and is handed over. Copied in it would be there at 9.
TEST(adaptive_keep, what_is_not_stored_yet_is_handed_over) {
    const played p = play(make_adaptive_keep(), plain_chain(4, 1, 1), machine_with(5, 3));
    EXPECT_NEAR(p.exposed, 0, k_close);
    EXPECT_EQ(p.host, 1U);  // the others would be stored too late, and are kept
    EXPECT_EQ(p.peak, 4U);
}

TEST(adaptive_keep, memory_is_free_when_it_is_stored_and_what_it_holds_follows_from_rates) {
    const played fast = play(make_adaptive_keep(), plain_chain(12, 2, 4), machine_with(1, 1));
    EXPECT_LT(fast.peak, 7U);
    EXPECT_NEAR(fast.exposed, 0, k_close);
    const played slow = play(make_adaptive_keep(), plain_chain(12, 2, 4), machine_with(6, 6));
    EXPECT_GT(slow.peak, fast.peak);
    // It knows no budget.
    EXPECT_TRUE(play(make_adaptive_keep(), plain_chain(12, 2, 4), machine_with(6, 6), 0, 0, 4 * k_mib).out_of_memory);
}

TEST(references, keep_moves_nothing_and_recompute_pays_once) {
    built_step step = plain_chain(4, 1, 2);
    step.model.fixed_bytes = 10 * k_mib;
    for (const uint32_t t : {1U, 2U}) {
        step.model.tensors[t].can_recompute = true;
        step.model.tensors[t].recompute_ns = 0.5 * k_unit_ns;
        step.model.tensors[t].recompute_from = {t - 1};
    }
    const played kept = play(make_keep(), step, machine_with(1, 1), 0, 0, 13 * k_mib);
    EXPECT_NEAR(kept.step, 12, k_close);
    EXPECT_EQ(kept.peak, 14U);
    EXPECT_EQ(kept.host, 0U);
    EXPECT_TRUE(kept.out_of_memory);
    const played again = play(make_recompute(), step, machine_with(1, 1), 0, 0, 13 * k_mib);
    EXPECT_NEAR(again.step, 13, k_close);
    EXPECT_NEAR(again.exposed, 0, k_close);
    EXPECT_LE(again.peak, 13U);
}

// Recomputing brings what it is computed from: through the rule, like any other use.
TEST(references, inputs_of_a_recompute_are_brought_by_the_rule) {
    built_step step = plain_chain(3, 1, 1);
    step.model.tensors[2].can_recompute = true;
    step.model.tensors[2].recompute_ns = 1 * k_unit_ns;
    step.model.tensors[2].recompute_from = {1};
    step.save_set.placement[2] = tensor_placement::recompute;
    // 3 + 1 + 3 of work; 0 and 1 go out and come in.
    EXPECT_NEAR(play(make_synchronous(), step, machine_with(2, 3)).step, 7 + 2 * (2 + 3), k_close);
}

TEST(best_setting, the_fastest_that_fits) {
    const built_step step = plain_chain(8, 1, 2);
    const sim_machine machine = machine_with(2, 2);
    const result<best_setting> roomy = play_best(*make_static_window(), step, machine, 8 * k_mib);
    const result<best_setting> tight = play_best(*make_static_window(), step, machine, 3 * k_mib);
    ASSERT_TRUE(roomy.ok() && tight.ok());
    EXPECT_EQ(roomy.value().chosen.count, 0U);
    EXPECT_EQ(tight.value().chosen.count, 5U);
    EXPECT_FALSE(tight.value().result.out_of_memory);
    const result<best_setting> none = play_best(*make_static_window(), step, machine, 0);
    ASSERT_TRUE(none.ok());
    EXPECT_TRUE(none.value().result.out_of_memory);
}

TEST(all_baselines, are_eight_with_names_of_their_own) {
    const std::vector<std::unique_ptr<baseline>> all = make_all_baselines();
    ASSERT_EQ(all.size(), 8U);
    for (size_t a = 0; a < all.size(); ++a) {
        EXPECT_FALSE(all[a]->settings(plain_chain(4, 1, 1)).empty());
        for (size_t b = 0; b < a; ++b) {
            EXPECT_STRNE(all[a]->name(), all[b]->name());
        }
    }
}

}  // namespace
}  // namespace ebb::baselines
