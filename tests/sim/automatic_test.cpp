// Automatic mode on the simulated device: what the policy leaves open is planned from what the runtime measured itself.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "schedule/planner.hpp"
#include "simulate/step_player.hpp"

namespace ebb::test {
namespace {

constexpr uint64_t k_mib = 1 << 20;
constexpr double k_ms = 1e6;

struct chain_options {
    uint32_t layers = 24;
    uint64_t size_bytes = 64 * k_mib;
    double forward_ns = 4 * k_ms;
    double backward_ns = 8 * k_ms;
    bool can_recompute = false;
};

step_model chain_of(const chain_options &o) {
    step_model m;
    const auto add = [&m](step_event_kind what, uint32_t tensor, double time_ns = 0) {
        step_event e;
        e.what = what;
        e.tensor = tensor;
        e.time_ns = time_ns;
        m.events.push_back(e);
    };
    for (uint32_t l = 0; l < o.layers; ++l) {
        step_tensor t;
        t.name = "layer." + std::to_string(l) + "/saved";
        t.layer = l;
        t.size_bytes = o.size_bytes;
        t.can_recompute = o.can_recompute;
        t.recompute_ns = o.can_recompute ? o.forward_ns : 0;
        m.tensors.push_back(t);
        add(step_event_kind::work, k_no_index, o.forward_ns);
        add(step_event_kind::produce, l);
    }
    for (uint32_t l = o.layers; l-- > 0;) {
        add(step_event_kind::use, l);
        add(step_event_kind::work, k_no_index, o.backward_ns);
        add(step_event_kind::release, l);
    }
    return m;
}

play_options automatic(uint64_t budget_bytes, double gb_per_second, memory_mode mode) {
    play_options o;
    o.mode = mode;
    o.machine.host_bytes = uint64_t{1} << 40U;
    o.machine.d2h.bytes_per_second = gb_per_second * 1e9;
    o.machine.h2d.bytes_per_second = gb_per_second * 1e9;
    o.machine.host_call_ps = 1;
    o.core.policy = "auto";
    o.core.device_budget_bytes = budget_bytes;
    o.core.chunk_bytes = 16 * k_mib;
    return o;
}

plan_budget budget_of(const play_options &o) {
    plan_budget b;
    b.mode = o.mode;
    b.device_bytes = o.core.device_budget_bytes;
    b.d2h = {o.machine.d2h.bytes_per_second, 0, 0};
    b.h2d = {o.machine.h2d.bytes_per_second, 0, 0};
    return b;
}

// The time of the last of some steps.
double play_steps(step_player &player, int steps) {
    double last_ns = 0;
    for (int i = 0; i < steps; ++i) {
        const result<step_player::step_result> played = player.play();
        EXPECT_TRUE(played.ok()) << played.why().text();
        last_ns = played.ok() ? played.value().step_ns : 0;
    }
    return last_ns;
}

class automatic_mode : public ::testing::TestWithParam<memory_mode> {};

TEST_P(automatic_mode, reaches_what_the_planner_says) {
    for (const double gb_per_second : {8.0, 16.0, 40.0}) {
        for (const bool can_recompute : {false, true}) {
            chain_options c;
            c.can_recompute = can_recompute;
            const step_model model = chain_of(c);
            for (const uint64_t slots : {uint64_t{6}, uint64_t{10}, uint64_t{16}}) {
                const play_options o = automatic(slots * c.size_bytes + slots * 1024, gb_per_second, GetParam());
                planner search(model);
                const planned best = search.make(budget_of(o));
                ASSERT_TRUE(best.feasible);
                result<std::unique_ptr<step_player>> player = step_player::make(model, o);
                ASSERT_TRUE(player.ok()) << player.why().text();
                const double played_ns = play_steps(*player.value(), 16);
                EXPECT_LE(played_ns, best.predicted.step_ns * 1.01)
                    << gb_per_second << " GB/s, " << slots << " slots, recompute " << can_recompute;
            }
        }
    }
}

TEST_P(automatic_mode, keeps_everything_that_fits) {
    const chain_options c;
    const step_model model = chain_of(c);
    result<std::unique_ptr<step_player>> player =
        step_player::make(model, automatic(4 * c.layers * c.size_bytes, 5, GetParam()));
    ASSERT_TRUE(player.ok()) << player.why().text();
    play_steps(*player.value(), 6);
    const uint64_t moved = player.value()->statistics().d2h_bytes;
    const double played_ns = play_steps(*player.value(), 2);
    EXPECT_EQ(player.value()->statistics().d2h_bytes, moved) << "nothing needs to move";
    EXPECT_NEAR(played_ns, c.layers * (c.forward_ns + c.backward_ns), 1e3);
}

TEST_P(automatic_mode, a_slow_first_step_leads_to_the_same_plan) {
    chain_options c;
    c.can_recompute = true;
    const step_model model = chain_of(c);
    double step_ns[2] = {0, 0};
    uint64_t moved[2] = {0, 0};
    for (const bool slow : {false, true}) {
        result<std::unique_ptr<step_player>> player =
            step_player::make(model, automatic(8 * c.size_bytes + 8 * 1024, 16, GetParam()));
        ASSERT_TRUE(player.ok()) << player.why().text();
        player.value()->slow_down(slow ? 5 : 1);
        play_steps(*player.value(), 1);
        player.value()->slow_down(1);
        play_steps(*player.value(), 10);
        const uint64_t before = player.value()->statistics().d2h_bytes;
        step_ns[slow ? 1 : 0] = play_steps(*player.value(), 1);
        moved[slow ? 1 : 0] = player.value()->statistics().d2h_bytes - before;
    }
    EXPECT_EQ(step_ns[0], step_ns[1]);
    EXPECT_EQ(moved[0], moved[1]);
}

INSTANTIATE_TEST_SUITE_P(modes, automatic_mode, ::testing::Values(memory_mode::one_pool, memory_mode::staging),
                         [](const auto &p) { return p.param == memory_mode::one_pool ? "one_pool" : "staging"; });

}  // namespace
}  // namespace ebb::test
