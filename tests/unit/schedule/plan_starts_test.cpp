#include "schedule/plan_starts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/step_builder.hpp"
#include "support/transformer_model.hpp"

namespace ebb {
namespace {

TEST(plan_starts, layers_that_measured_a_little_differently_are_alike) {
    step_model m = transformer_model(30);
    EXPECT_EQ(plan_starts(m).classes().size(), k_layer_tensors);
    std::mt19937_64 random(1);
    for (step_tensor &t : m.tensors) {
        t.recompute_ns *= 1 + 0.02 * (static_cast<double>(random() % 2001) / 1000 - 1);
    }
    const plan_starts starts(m);
    EXPECT_EQ(starts.classes().size(), k_layer_tensors);
    for (const std::vector<uint32_t> &members : starts.classes()) {
        EXPECT_EQ(members.size(), 30U);
        EXPECT_TRUE(std::is_sorted(members.begin(), members.end()));
    }
    m.tensors[5].recompute_ns *= 2;
    EXPECT_EQ(plan_starts(m).classes().size(), k_layer_tensors + 1);
}

// Four layers of 10 bytes; 1 and 2 are cheap to recompute.
step_builder four_layers() {
    step_builder s;
    for (int i = 0; i < 4; ++i) {
        s.work(5).produce(10);
    }
    s.recompute(0, 9).recompute(1, 2).recompute(2, 2).recompute(3, 9);
    for (uint32_t i = 4; i-- > 0;) {
        s.backward(i, 5);
    }
    return s;
}

std::string built(const plan_starts &starts, const plan_start &start) {
    plan p;
    starts.build(start, p);
    std::string text;
    for (const tensor_placement where : p.placement) {
        text += where == tensor_placement::keep ? 'k' : where == tensor_placement::offload ? 'o' : 'r';
    }
    return text;
}

TEST(plan_starts, the_cheapest_are_recomputed_the_latest_kept_and_the_rest_offloaded) {
    const step_builder s = four_layers();
    const plan_starts starts(s.model);
    plan_start start;
    start.recomputed = 1;
    start.kept_limit_bytes = 20;
    start.order = 0;
    EXPECT_EQ(built(starts, start), "okrk");
    start.order = 1;
    EXPECT_EQ(built(starts, start), "orkk");
    start.recomputed = 3;
    EXPECT_EQ(built(starts, start).substr(1, 2), "rr");
    start.recomputed = 1;
    start.order = 0;
    start.kept_first_bytes = 20;
    EXPECT_EQ(built(starts, start), "orkk");
    start = {};
    start.kept_limit_bytes = 20;
    start.may_offload = false;
    EXPECT_EQ(built(starts, start), "rrkk");
}

TEST(plan_starts, spreads_what_is_kept) {
    const step_model m = transformer_model(8);
    const plan_starts starts(m);
    plan_start start;
    start.kept_limit_bytes = 2 * starts.layer_bytes();
    start.kept_spread = true;
    plan p;
    starts.build(start, p);
    const auto kept_in = [&](uint32_t layer) {
        return std::count(p.placement.begin() + layer * k_layer_tensors,
                          p.placement.begin() + (layer + 1) * k_layer_tensors, tensor_placement::keep);
    };
    for (uint32_t layer = 0; layer < 8; ++layer) {
        EXPECT_GT(kept_in(layer), 0) << layer;
        EXPECT_LT(kept_in(layer), k_layer_tensors) << layer;
    }
}

TEST(plan_starts, knows_what_plans_hold_at_least) {
    step_builder s;
    s.work(5).produce(10).work(5).produce(4).work(5).produce(6);
    const uint32_t place = s.next_event();
    s.recompute(1, 3);
    s.use(2).work(5).use(1).work(5).release(2).release(1).backward(0, 5);
    s.model.tensors[1].recompute_at = place;
    const plan_starts starts(s.model);
    EXPECT_EQ(starts.used_at_once_bytes(plan_of("ooo")), 10U);
    EXPECT_EQ(starts.used_at_once_bytes(plan_of("oko")), 10U);
    EXPECT_EQ(starts.used_at_once_bytes(plan_of("kok")), 4U);
    EXPECT_EQ(starts.fixed_peak_bytes(plan_of("kkk")), 20U);
    EXPECT_EQ(starts.fixed_peak_bytes(plan_of("krk")), 20U);
    EXPECT_EQ(starts.fixed_peak_bytes(plan_of("kok")), 16U);
    EXPECT_EQ(starts.fixed_peak_bytes(plan_of("ooo")), 10U);  // in the making
}

}  // namespace
}  // namespace ebb
