#include "routing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "direct_device.hpp"

namespace step {
namespace {

step_shape some_shape() {
    step_shape shape;
    shape.layers = 4;
    shape.sequence = 300;
    shape.micro_batch = 2;
    shape.experts = 16;
    shape.top_k = 4;
    shape.capacity_factor = 1.2;
    return shape;
}

TEST(routing, a_token_goes_to_different_experts) {
    const step_shape shape = some_shape();
    const routing r = draw_routing(shape, 1);
    for (int64_t t = 0; t < shape.tokens(); ++t) {
        const auto *const first = r.expert_of_slot.data() + t * shape.top_k;
        EXPECT_EQ(std::set<int32_t>(first, first + shape.top_k).size(), 4U) << t;
        EXPECT_LT(*std::max_element(first, first + shape.top_k), shape.experts);
        EXPECT_GE(*std::min_element(first, first + shape.top_k), 0);
    }
}

TEST(routing, rows_are_in_the_order_of_experts_and_tokens) {
    const step_shape shape = some_shape();
    const routing r = draw_routing(shape, 1);
    for (size_t expert = 0; expert < 16; ++expert) {
        EXPECT_LE(r.first_row[expert + 1] - r.first_row[expert], shape.expert_capacity());
        for (int64_t i = r.first_row[expert]; i < r.first_row[expert + 1]; ++i) {
            const auto row = static_cast<size_t>(i);
            const auto slot = static_cast<size_t>(r.slot_of_row[row]);
            EXPECT_EQ(r.expert_of_slot[slot], static_cast<int32_t>(expert));
            EXPECT_EQ(r.row_of_slot[slot], static_cast<int32_t>(i));
            EXPECT_EQ(r.token_of_row[row], static_cast<int32_t>(slot) / 4);
            EXPECT_TRUE(i == r.first_row[expert] || r.token_of_row[row] > r.token_of_row[row - 1]);
        }
    }
    const auto without_row = std::count(r.row_of_slot.begin(), r.row_of_slot.end(), -1);
    EXPECT_EQ(r.rows() + without_row, shape.slots());
    EXPECT_GT(without_row, 0) << "a popular expert overflows at this capacity";
    EXPECT_LE(r.rows(), shape.most_ffn_rows());
}

TEST(routing, is_the_same_from_the_same_seed_alone) {
    const step_shape shape = some_shape();
    EXPECT_EQ(draw_routing(shape, 1).row_of_slot, draw_routing(shape, 1).row_of_slot);
    EXPECT_NE(draw_routing(shape, 1).row_of_slot, draw_routing(shape, 2).row_of_slot);
}

TEST(routing_tables, rows_differ_between_steps_and_stay_within_the_bound) {
    direct_device<float> device;
    const step_shape shape = some_shape();
    const routing_tables tables(device, shape, 1);
    std::set<int64_t> rows;
    for (int64_t step = 0; step < 20; ++step) {
        const device_routing *const r = tables.of(step, 0, 1);
        EXPECT_EQ(r, tables.of(step, 0, 1));
        EXPECT_LE(r->rows(), shape.most_ffn_rows());
        rows.insert(r->rows());
        EXPECT_EQ(r->expert_of_slot[r->slot_of_row[r->first_row[3]]], 3) << "uploaded as drawn";
    }
    EXPECT_GT(rows.size(), 3U);
}

TEST(routing_tables, a_dense_model_has_none) {
    direct_device<float> device;
    EXPECT_EQ(routing_tables(device, step_shape{}, 1).of(0, 0, 0), nullptr);
}

TEST(memory_account, keeps_what_was_held_at_the_peak) {
    memory_account account;
    account.add(memory_kind::weights, 10);
    account.add(memory_kind::activations, 5);
    account.add(memory_kind::activations, 7);
    account.remove(memory_kind::activations, 7);
    account.set(memory_kind::staging, 3);
    EXPECT_EQ(sum_of(account.held()), 18U);
    const bytes_by_kind peak = account.take_peak();
    EXPECT_EQ(peak[static_cast<size_t>(memory_kind::activations)], 12U);
    EXPECT_EQ(peak[static_cast<size_t>(memory_kind::staging)], 0U);
    EXPECT_EQ(sum_of(account.take_peak()), 18U) << "counted anew";
    account.set(memory_kind::staging, 1);
    EXPECT_EQ(sum_of(account.held()), 16U);
}

}  // namespace
}  // namespace step
