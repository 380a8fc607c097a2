// Our plans on the published workloads: as fast as the best published row, with the same save set and collectives,
// little memory for copies and no setting per model.
#include "simulate/published_ours.hpp"

#include <gtest/gtest.h>

namespace ebb {
namespace {

TEST(published_ours_, are_as_fast_as_the_best_row_with_few_copy_buffers_and_no_setting) {
    const result<published_report> report = predict_published();
    ASSERT_TRUE(report.ok()) << report.why().text();
    const result<std::vector<published_ours>> ours = plan_published(report.value());
    ASSERT_TRUE(ours.ok()) << ours.why().text();
    ASSERT_EQ(ours.value().size(), 4U);
    for (const published_ours &o : ours.value()) {
        EXPECT_TRUE(o.settings.empty());
        EXPECT_GE(o.tflops, 0.999 * o.best_published_tflops) << "table " << o.table;
        // What is played is what was planned.
        EXPECT_NEAR(o.tflops / o.predicted_tflops, 1, 0.001) << "table " << o.table;
        EXPECT_EQ(o.copy_buffers_gib.has_value(), o.comparable);
    }
    EXPECT_LE(*ours.value()[0].copy_buffers_gib, 2.5);
    EXPECT_NEAR(ours.value()[0].pipelined_rule_gib, 4.8, 0.05);
    EXPECT_LE(*ours.value()[1].copy_buffers_gib, ours.value()[1].pipelined_rule_gib);
    EXPECT_EQ(ours.value()[1].pipelined_rule_gib, 1.125);
    EXPECT_EQ(ours.value()[0].best_published_tflops, 908.2);
    EXPECT_EQ(ours.value()[1].best_published_tflops, 2746);
    // Rates are fitted to that row, so with nothing else to change there is nothing to gain.
    for (const size_t i : {size_t{0}, size_t{1}}) {
        EXPECT_LE(ours.value()[i].tflops, 1.001 * ours.value()[i].best_published_tflops);
        EXPECT_GT(ours.value()[i + 2].tflops, ours.value()[i].tflops) << "a free plan may do the same";
    }
}

}  // namespace
}  // namespace ebb
