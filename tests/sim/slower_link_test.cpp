// A link that gets slower after the plan was made: somebody else has begun to use it. A step that is sampled later
// finds the copies late, and a plan is made that counts on less.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "schedule/planner.hpp"
#include "simulate/step_player.hpp"
#include "step_models.hpp"

namespace ebb::test {
namespace {

constexpr uint64_t k_mib = uint64_t{1} << 20U;
constexpr double k_ms = 1e6;
constexpr uint32_t k_layers = 24;
constexpr uint64_t k_size_bytes = 64 * k_mib;
constexpr double k_fast_rate = 20e9;
constexpr uint32_t k_sample_every = 4;

step_model chain_with_recompute(bool can_recompute) {
    layer_tensor t;
    t.size_bytes = k_size_bytes;
    t.forward_ns = 4 * k_ms;
    t.backward_ns = 8 * k_ms;
    t.can_recompute = can_recompute;
    t.recompute_ns = 4 * k_ms;
    return step_model_maker(std::vector<layer_shape>(k_layers, layer_shape{t})).make(accumulation(1));
}

play_options on_fast_link(uint64_t tensors, memory_mode mode) {
    play_options o;
    o.mode = mode;
    o.machine.host_bytes = uint64_t{1} << 40U;
    o.machine.d2h.bytes_per_second = k_fast_rate;
    o.machine.h2d.bytes_per_second = k_fast_rate;
    o.machine.host_call_ps = 1;
    o.core.policy = "auto";
    o.core.device_budget_bytes = tensors * (k_size_bytes + 1024);
    o.core.chunk_bytes = 16 * k_mib;
    o.core.sample_every = k_sample_every;
    return o;
}

plan_budget budget_at(const play_options &o, double d2h_rate, double h2d_rate) {
    plan_budget b;
    b.mode = o.mode;
    b.device_bytes = o.core.device_budget_bytes;
    b.d2h = {d2h_rate, 0, o.core.chunk_bytes};
    b.h2d = {h2d_rate, 0, o.core.chunk_bytes};
    return b;
}

double last_step_ns(step_player &player, uint32_t steps) {
    double last_ns = 0;
    for (uint32_t i = 0; i < steps; ++i) {
        const result<step_player::step_result> played = player.play();
        EXPECT_TRUE(played.ok()) << played.why().text();
        last_ns = played.ok() ? played.value().step_ns : 0;
    }
    return last_ns;
}

class slower_link : public ::testing::TestWithParam<memory_mode> {};

// Fails where only the first step after a plan is compared with it: the step then stays as long as the old plan makes
// it.
TEST_P(slower_link, leads_to_a_plan_for_what_is_left_of_it) {
    for (const bool can_recompute : {true, false}) {
        const step_model model = chain_with_recompute(can_recompute);
        const play_options o = on_fast_link(10, GetParam());
        for (const auto &[d2h_part, h2d_part] : {std::pair(0.25, 0.25), std::pair(1.0, 0.2), std::pair(0.3, 1.0)}) {
            result<std::unique_ptr<step_player>> player = step_player::make(model, o);
            ASSERT_TRUE(player.ok()) << player.why().text();
            last_step_ns(*player.value(), 12);
            player.value()->device().set_link_rates(d2h_part * k_fast_rate, h2d_part * k_fast_rate);
            const double old_plan_ns = last_step_ns(*player.value(), 1);
            const double new_plan_ns = last_step_ns(*player.value(), 16 * k_sample_every);
            planner search(model);
            const planned best = search.make(budget_at(o, d2h_part * k_fast_rate, h2d_part * k_fast_rate));
            ASSERT_TRUE(best.feasible);
            const std::string what = std::string(can_recompute ? "with" : "without") + " recompute, d2h " +
                                     std::to_string(d2h_part) + ", h2d " + std::to_string(h2d_part);
            EXPECT_LE(new_plan_ns, old_plan_ns + 1) << what;
            if (best.predicted.step_ns < 0.9 * old_plan_ns) {
                EXPECT_LE(new_plan_ns, 1.05 * best.predicted.step_ns) << what << "; the old one takes " << old_plan_ns;
            }
        }
    }
}

// The test above has something to find.
TEST(slower_link_alone, makes_the_old_plan_a_bad_one) {
    const step_model model = chain_with_recompute(true);
    const play_options o = on_fast_link(10, memory_mode::one_pool);
    planner search(model);
    const planned before = search.make(budget_at(o, k_fast_rate, k_fast_rate));
    const plan_budget slow = budget_at(o, 0.25 * k_fast_rate, 0.25 * k_fast_rate);
    const planned after = search.make(slow);
    ASSERT_TRUE(before.feasible && after.feasible);
    evaluator judge(model);
    EXPECT_GT(judge.evaluate(before.chosen, slow).step_ns, 1.2 * after.predicted.step_ns);
}

// Fails where a link that nobody needs makes the runtime plan anew, and where what fits is moved.
TEST_P(slower_link, changes_nothing_where_everything_is_kept) {
    const step_model model = chain_with_recompute(true);
    const play_options o = on_fast_link(2 * k_layers, GetParam());
    result<std::unique_ptr<step_player>> player = step_player::make(model, o);
    ASSERT_TRUE(player.ok()) << player.why().text();
    last_step_ns(*player.value(), 12);
    const uint64_t moved_bytes = player.value()->statistics().d2h_bytes;
    player.value()->device().set_link_rates(0.1 * k_fast_rate, 0.1 * k_fast_rate);
    EXPECT_NEAR(last_step_ns(*player.value(), 4 * k_sample_every), k_layers * 12 * k_ms, 1e3);
    EXPECT_EQ(player.value()->statistics().d2h_bytes, moved_bytes);
}

INSTANTIATE_TEST_SUITE_P(modes, slower_link, ::testing::Values(memory_mode::one_pool, memory_mode::staging),
                         [](const auto &p) { return p.param == memory_mode::one_pool ? "one_pool" : "staging"; });

}  // namespace
}  // namespace ebb::test
