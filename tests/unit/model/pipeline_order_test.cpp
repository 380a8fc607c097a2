#include "model/pipeline_order.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <set>
#include <string>
#include <tuple>

namespace ebb {
namespace {

std::string shown(const std::vector<pipeline_pass> &order) {
    std::string text;
    for (const pipeline_pass &p : order) {
        text += fmt::format("{}{}{} ", p.backward ? 'B' : 'F', p.micro_batch, p.chunk == 0 ? "" : "'");
    }
    return text;
}

double waits(const std::vector<pipeline_pass> &order) {
    double sum = 0;
    for (const pipeline_pass &p : order) {
        sum += p.wait_ns;
    }
    return sum;
}

TEST(pipeline_order, one_stage_is_gradient_accumulation) {
    EXPECT_EQ(shown(pipeline_order({1, 1, 3}, 0)), "F0 B0 F1 B1 F2 B2 ");
}

TEST(pipeline_order, one_forward_one_backward) {
    EXPECT_EQ(shown(pipeline_order({3, 1, 4}, 0)), "F0 F1 F2 B0 F3 B1 B2 B3 ");
    EXPECT_EQ(shown(pipeline_order({3, 1, 4}, 2)), "F0 B0 F1 B1 F2 B2 F3 B3 ");
    EXPECT_EQ(shown(pipeline_order({3, 1, 1}, 0)), "F0 B0 ");
}

TEST(pipeline_order, interleaved) {
    EXPECT_EQ(shown(pipeline_order({2, 2, 4}, 1)), "F0 F1 F0' B0' F1' B1' F2 B0 F3 B1 F2' B2' F3' B3' B2 B3 ");
    for (uint64_t stage = 0; stage < 4; ++stage) {
        std::set<std::tuple<bool, uint32_t, uint64_t>> seen;
        for (const pipeline_pass &p : pipeline_order({4, 3, 8}, stage)) {
            seen.insert({p.backward, p.chunk, p.micro_batch});
        }
        EXPECT_EQ(seen.size(), 2U * 3 * 8);
    }
}

// (stages - 1) times a forward and a backward is lost on every device.
TEST(pipeline_order, waits_are_the_known_bubble) {
    const std::vector<pipeline_time> even(4, {10, 20});
    for (uint64_t stage = 0; stage < 4; ++stage) {
        double before_end = 0;
        const std::vector<pipeline_pass> schedule = pipeline_schedule({4, 1, 8}, stage, even);
        before_end = waits(schedule);
        // A later stage is done earlier: the rest of the bubble lies behind its last pass.
        EXPECT_DOUBLE_EQ(before_end, 3 * 30.0 - 20.0 * static_cast<double>(stage)) << stage;
    }
}

TEST(pipeline_order, interleaving_divides_the_bubble_by_the_chunks) {
    const std::vector<pipeline_time> even(8, {5, 10});
    EXPECT_DOUBLE_EQ(waits(pipeline_schedule({4, 2, 8}, 0, even)), 3 * 30.0 / 2);
}

TEST(pipeline_order, nothing_is_waited_for_alone) {
    EXPECT_EQ(waits(pipeline_schedule({1, 1, 5}, 0, {{3, 4}})), 0);
}

}  // namespace
}  // namespace ebb
