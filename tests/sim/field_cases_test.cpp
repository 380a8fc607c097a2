// Faults seen in the field, on whole steps through the real runtime: memory that is one (S6), copies that do not pay
// (S7), sizes that change every step (G5), and a link that gets slower. Each says what makes it fail.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "field_bench.hpp"
#include "schedule/evaluator.hpp"
#include "simulate/step_player.hpp"
#include "step_models.hpp"

namespace ebb::test {
namespace {

constexpr uint64_t k_mib = uint64_t{1} << 20U;
constexpr double k_ms = 1e6;

std::vector<layer_shape> equal_layers(uint32_t layers, uint64_t size_bytes, double forward_ns, double recompute_ns) {
    layer_tensor t;
    t.size_bytes = size_bytes;
    t.forward_ns = forward_ns;
    t.backward_ns = 2 * forward_ns;
    t.can_recompute = recompute_ns > 0;
    t.recompute_ns = recompute_ns;
    return std::vector<layer_shape>(layers, layer_shape{t});
}

play_options played_on(double gb_per_second, uint64_t budget_bytes, memory_mode mode, const char *policy) {
    play_options o;
    o.mode = mode;
    o.machine.host_bytes = uint64_t{1} << 40U;
    o.machine.d2h.bytes_per_second = gb_per_second * 1e9;
    o.machine.h2d.bytes_per_second = gb_per_second * 1e9;
    o.machine.host_call_ps = 1;
    o.core.policy = policy;
    o.core.device_budget_bytes = budget_bytes;
    o.core.chunk_bytes = 16 * k_mib;
    return o;
}

std::unique_ptr<step_player> player_of(const step_model &model, const play_options &o) {
    result<std::unique_ptr<step_player>> made = step_player::make(model, o);
    EXPECT_TRUE(made.ok()) << made.why().text();
    return made.ok() ? std::move(made.value()) : nullptr;
}

step_player::step_result play_steps(step_player &player, int steps) {
    step_player::step_result last;
    for (int i = 0; i < steps; ++i) {
        const result<step_player::step_result> played = player.play();
        EXPECT_TRUE(played.ok()) << played.why().text();
        last = played.ok() ? played.value() : step_player::step_result();
    }
    return last;
}

uint64_t moved_bytes(step_player &player) {
    const ebb_statistics s = player.statistics();
    return s.d2h_bytes + s.h2d_bytes;
}

class field_cases_by_mode : public ::testing::TestWithParam<memory_mode> {};

std::string mode_name(const ::testing::TestParamInfo<memory_mode> &p) {
    return p.param == memory_mode::one_pool ? "one_pool" : "staging";
}

// ---------------------------------------------------------------------------------- S6: device memory is the host's --

// Fails where the flag is not looked at: the same steps move bytes on the same machine without it.
TEST_P(field_cases_by_mode, s6_on_an_integrated_device_nothing_is_copied) {
    const step_model model = step_model_maker(equal_layers(12, 32 * k_mib, 4 * k_ms, 0)).make(accumulation(2));
    for (const char *policy : {"offload", "auto", "t0=offload"}) {
        play_options o = played_on(40, 6 * 32 * k_mib + k_mib, GetParam(), policy);
        const std::unique_ptr<step_player> separate = player_of(model, o);
        play_steps(*separate, 8);
        EXPECT_GT(moved_bytes(*separate), 0U) << policy;
        o.machine.integrated = true;
        const std::unique_ptr<step_player> integrated = player_of(model, o);
        for (int step = 0; step < 8; ++step) {
            const step_player::step_result played = play_steps(*integrated, 1);
            EXPECT_EQ(played.kept[EBB_REASON_INTEGRATED], model.tensors.size()) << policy << ", step " << step;
            EXPECT_NEAR(played.step_ns, 2 * 12 * 12 * k_ms, 1e3) << policy << ", step " << step;
        }
        EXPECT_EQ(moved_bytes(*integrated), 0U) << policy;
        EXPECT_EQ(integrated->statistics().pinned_peak_bytes, 0U) << policy;
    }
}

// ----------------------------------------------------------------------------------------- S7: it would not pay --

// Fails where automatic mode moves what it could keep, or could compute again in less time than the link takes.
TEST_P(field_cases_by_mode, s7_nothing_is_moved_where_that_would_not_pay) {
    constexpr uint32_t k_layers = 20;
    constexpr uint64_t k_size_bytes = 64 * k_mib;
    constexpr double k_short_ns = 0.2 * k_ms;
    constexpr double k_gb_per_second = 2;  // 33 ms each way
    struct variant {
        const char *what;
        double recompute_ns;
        uint64_t budget_tensors;
    };
    for (const variant &v : {variant{"everything fits", 0, k_layers + 4}, variant{"recompute", k_short_ns, 8}}) {
        const step_model model =
            step_model_maker(equal_layers(k_layers, k_size_bytes, k_short_ns, v.recompute_ns)).make(accumulation(1));
        plan by_hand;  // what was possible before Ebb
        by_hand.placement.assign(model.tensors.size(),
                                 v.recompute_ns > 0 ? tensor_placement::recompute : tensor_placement::keep);
        play_options o = played_on(k_gb_per_second, v.budget_tensors * (k_size_bytes + 1024), GetParam(), "auto");
        const std::unique_ptr<step_player> player = player_of(model, o);
        play_steps(*player, 8);
        const uint64_t moved_before = moved_bytes(*player);
        const double automatic_ns = play_steps(*player, 4).step_ns;
        EXPECT_EQ(moved_bytes(*player), moved_before) << v.what;
        o.fixed = &by_hand;
        const std::unique_ptr<step_player> without = player_of(model, o);
        EXPECT_LE(automatic_ns, play_steps(*without, 4).step_ns + 1) << v.what;
        EXPECT_EQ(moved_bytes(*without), 0U);
        // There is something to get wrong: with everything offloaded the same step is far longer.
        o.fixed = nullptr;
        o.core.policy = "offload";
        o.core.device_budget_bytes = 8 * (k_size_bytes + 1024);
        EXPECT_GT(play_steps(*player_of(model, o), 4).step_ns, 5 * automatic_ns) << v.what;
    }
}

// No recompute, and it does not fit: then it moves, however slow, and every step gets through.
TEST_P(field_cases_by_mode, s7_where_nothing_else_is_possible_it_trains_all_the_same) {
    constexpr uint64_t k_size_bytes = 64 * k_mib;
    const step_model model = step_model_maker(equal_layers(20, k_size_bytes, 0.2 * k_ms, 0)).make(accumulation(1));
    const play_options o = played_on(2, 8 * (k_size_bytes + 1024), GetParam(), "auto");
    const std::unique_ptr<step_player> player = player_of(model, o);
    play_steps(*player, 8);
    const uint64_t moved_before = moved_bytes(*player);
    const step_player::step_result last = play_steps(*player, 1);
    EXPECT_GT(moved_bytes(*player), moved_before);
    EXPECT_EQ(last.no_slot, 0U);
    EXPECT_LE(player->statistics().device_peak_bytes, o.core.device_budget_bytes);
    // Not more than must: twelve of twenty out and in again, each way 33 ms.
    EXPECT_LE(last.step_ns, 14 * 2 * static_cast<double>(k_size_bytes) / 2 + 20 * 0.6 * k_ms);
}

// ----------------------------------------------------------------------------------- G5: sizes change every step --

std::vector<layer_shape> routed_layers() {
    std::vector<layer_shape> layers;
    for (uint32_t l = 0; l < 16; ++l) {
        layer_shape &layer = layers.emplace_back();
        for (const uint64_t mib : {24U, 8U, 48U, 16U}) {
            layer_tensor t;
            t.size_bytes = mib * k_mib;
            t.forward_ns = 1 * k_ms;
            t.backward_ns = 2 * k_ms;
            layer.push_back(t);
        }
    }
    return layers;
}

double work_ns(const step_model &model) {
    double all_ns = 0;
    for (const step_event &e : model.events) {
        all_ns += e.what == step_event_kind::work ? e.time_ns : 0;
    }
    return all_ns;
}

struct reload_counts {
    uint64_t prefetched = 0;
    uint64_t on_demand = 0;
    double step_ns = 0;
    uint64_t no_slot = 0;
    [[nodiscard]] double part() const {
        return static_cast<double>(prefetched) / static_cast<double>(std::max<uint64_t>(prefetched + on_demand, 1));
    }
};

// Of the steps after the first eight: by then the step is recorded, measured and planned.
reload_counts reloads_of(const step_model &model, const play_options &o) {
    const std::unique_ptr<step_player> player = player_of(model, o);
    play_steps(*player, 8);
    const ebb_statistics before = player->statistics();
    reload_counts seen;
    for (int step = 0; step < 24; ++step) {
        const step_player::step_result played = play_steps(*player, 1);
        seen.step_ns += played.step_ns;
        seen.no_slot += played.no_slot;
    }
    const ebb_statistics after = player->statistics();
    seen.prefetched = after.reloads_prefetched - before.reloads_prefetched;
    seen.on_demand = after.reloads_on_demand - before.reloads_on_demand;
    EXPECT_EQ(after.live_activations, 0U);
    return seen;
}

// Fails where a changed size is taken for another tensor, or slots of other sizes throw the window out of step: then
// reloads are copied when they are asked for, as without prefetching, which is what the second run shows.
TEST_P(field_cases_by_mode, g5_sizes_that_change_every_step_are_prefetched) {
    const step_model model = step_model_maker(routed_layers()).make(accumulation(2));
    const auto budget_bytes = static_cast<uint64_t>(0.5 * static_cast<double>(peak_saved_bytes(model)));
    for (const char *policy : {"offload", "auto"}) {
        for (const redrawn_sizes &sizes : {redrawn_sizes{true, 1, 0.5, 1}, redrawn_sizes{true, 2, 0.75, 1.25}}) {
            play_options o = played_on(40, budget_bytes, GetParam(), policy);
            o.sizes = sizes;
            const reload_counts seen = reloads_of(model, o);
            const std::string what = std::string(policy) + ", up to " + std::to_string(sizes.most);
            EXPECT_GE(seen.part(), 0.9) << what << ": " << seen.prefetched << " prefetched, " << seen.on_demand
                                        << " on demand";
            EXPECT_GT(seen.prefetched, 200U) << what;
            EXPECT_LE(seen.step_ns, 24 * work_ns(model) * 1.02) << what << ": issued ahead, but late";
            o.core.prefetch_bytes = k_none_bytes;
            const reload_counts late = reloads_of(model, o);
            EXPECT_EQ(late.prefetched, 0U) << what;
            EXPECT_GT(late.on_demand, 200U) << what;
        }
    }
}

// Fails where such a tensor is refused, or goes where it has no room.
TEST_P(field_cases_by_mode, g5_what_is_larger_than_a_slot_is_kept_and_nothing_is_lost) {
    const step_model model = step_model_maker(routed_layers()).make(accumulation(2));
    play_options o = played_on(40, peak_saved_bytes(model) / 2, GetParam(), "offload");
    o.sizes = {true, 3, 0.75, 1.25};
    o.core.max_activation_bytes = 52 * k_mib;  // the largest ones are 36 to 60 MiB
    const std::unique_ptr<step_player> player = player_of(model, o);
    uint64_t larger = 0;
    for (int step = 0; step < 20; ++step) {
        const step_player::step_result played = play_steps(*player, 1);
        EXPECT_EQ(step == 0 ? 0 : 1, played.kept[EBB_REASON_LARGER_THAN_SLOT] > 0 ? 1 : 0) << "step " << step;
        larger += played.kept[EBB_REASON_LARGER_THAN_SLOT];
        for (size_t reason = 1; reason < played.kept.size(); ++reason) {
            EXPECT_TRUE(reason == EBB_REASON_LARGER_THAN_SLOT || played.kept[reason] == 0) << "reason " << reason;
        }
    }
    const ebb_statistics s = player->statistics();
    EXPECT_EQ(s.kept_count, larger);
    EXPECT_EQ(s.offloaded_count, s.offload_calls - larger);
    EXPECT_EQ(s.live_activations, 0U);
    EXPECT_EQ(s.kept_bytes, 0U);
    EXPECT_EQ(s.reloads_prefetched + s.reloads_on_demand + s.forwarded_count, s.offloaded_count);
}

INSTANTIATE_TEST_SUITE_P(modes, field_cases_by_mode, ::testing::Values(memory_mode::one_pool, memory_mode::staging),
                         mode_name);

}  // namespace
}  // namespace ebb::test
