// Plans against the best of all assignments, and against the lower bound, over seeded populations of chains.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "schedule/bounds.hpp"
#include "schedule/planner.hpp"
#include "support/chain_models.hpp"
#include "support/exhaustive_plan.hpp"
#include "support/random_models.hpp"

namespace ebb {
namespace {

using chains::chain;
using chains::population;

planned planned_for(const chain &c) {
    const step_model m = chains::model_of(c);
    return planner(m).make(c.planned_for());
}

// Of many plans: how much longer than what they are compared with.
class gaps {
public:
    void add(double planned_ns, double least_ns) { gaps_.push_back(planned_ns / least_ns - 1); }

    [[nodiscard]] double mean() const {
        double sum = 0;
        for (const double g : gaps_) {
            sum += g;
        }
        return sum / static_cast<double>(gaps_.size());
    }
    [[nodiscard]] double worst() const { return *std::max_element(gaps_.begin(), gaps_.end()); }
    [[nodiscard]] double quantile(double part) {
        std::sort(gaps_.begin(), gaps_.end());
        return gaps_[static_cast<size_t>(std::ceil(part * static_cast<double>(gaps_.size()))) - 1];
    }
    [[nodiscard]] long above(double limit) const {
        return std::count_if(gaps_.begin(), gaps_.end(), [&](double g) { return g > limit; });
    }

private:
    std::vector<double> gaps_;
};

template <class Draw>
gaps compared_with_all(int chains, const Draw &draw) {
    gaps found;
    for (int i = 0; i < chains; ++i) {
        const chain c = draw();
        const planned p = planned_for(c);
        EXPECT_TRUE(p.feasible);
        found.add(p.predicted.step_ns, chains::exhaustive_plan(c).best_below(p.predicted.step_ns));
    }
    return found;
}

TEST(schedule_planner, the_pruned_enumeration_finds_what_the_full_one_finds) {
    constexpr uint32_t layers = 6;
    population draw(200);
    for (int i = 0; i < 100; ++i) {
        const chain c = i % 2 == 0 ? draw.uniform(layers, draw.whole(3, 5), draw.between(1, 3), draw.between(0.3, 3.5),
                                                  draw.between(0.3, 3.5))
                                   : draw.non_uniform(layers, 0.3);
        const step_model m = chains::model_of(c);
        evaluator e(m);
        double best_ns = std::numeric_limits<double>::infinity();
        plan p;
        p.placement.resize(layers);
        for (uint32_t code = 0; code < 729; ++code) {
            uint32_t rest = code;
            for (tensor_placement &where : p.placement) {
                where = static_cast<tensor_placement>(1 + rest % 3);
                rest /= 3;
            }
            const evaluation &got = e.evaluate(p, c.planned_for());
            best_ns = got.feasible ? std::min(best_ns, got.step_ns) : best_ns;
        }
        ASSERT_NEAR(chains::exhaustive_plan(c).best_below(10 * best_ns), best_ns, best_ns * 1e-9) << "chain " << i;
    }
}

TEST(schedule_planner, nine_uniform_layers_are_planned_as_well_as_by_trying_all) {
    population draw(201);
    gaps found = compared_with_all(1000, [&] { return draw.uniform_small(9); });
    EXPECT_LE(found.mean(), 0.0002);
    EXPECT_LE(found.quantile(0.99), 0.005);
    EXPECT_LE(found.above(0.01), 2);
}

TEST(schedule_planner, nine_different_layers_are_planned_nearly_as_well_as_by_trying_all) {
    population draw(202);
    gaps found = compared_with_all(1000, [&] { return draw.non_uniform(9, 0.3); });
    EXPECT_LE(found.mean(), 0.0002);
    EXPECT_LE(found.quantile(0.99), 0.005);
    EXPECT_LE(found.above(0.01), 2);
}

TEST(schedule_planner, thirteen_layers_are_planned_nearly_as_well_as_by_trying_all) {
    population draw(203);
    const gaps uniform = compared_with_all(50, [&] { return draw.uniform_small(13); });
    EXPECT_LE(uniform.mean(), 0.0005);
    EXPECT_LE(uniform.worst(), 0.01);
    const gaps different = compared_with_all(50, [&] { return draw.non_uniform(13, 0.3); });
    EXPECT_LE(different.mean(), 0.0005);
    EXPECT_LE(different.worst(), 0.01);
}

template <class Draw>
gaps compared_with_bound(int chains, const Draw &draw) {
    gaps found;
    for (int i = 0; i < chains; ++i) {
        const planned p = planned_for(draw());
        EXPECT_TRUE(p.feasible);
        found.add(p.predicted.step_ns, p.bound_ns);
    }
    return found;
}

TEST(schedule_planner, uniform_chains_come_close_to_the_bound) {
    population draw(204);
    const gaps realistic = compared_with_bound(10000, [&] { return draw.uniform_realistic(); });
    EXPECT_LE(realistic.mean(), 0.0002);
    EXPECT_LE(realistic.worst(), 0.015);
    const gaps independent = compared_with_bound(10000, [&] { return draw.uniform_independent(); });
    EXPECT_LE(independent.mean(), 0.0005);
    EXPECT_LE(independent.worst(), 0.04);
}

TEST(schedule_planner, is_never_worse_than_the_plain_plans_and_is_the_same_each_time) {
    population draw(205);
    int feasible = 0;
    for (int i = 0; i < 300; ++i) {
        const step_model m = random_sequence(draw);
        const plan_budget b = random_budget(draw, m);
        planner first(m);
        const planned p = first.make(b);
        if (!p.feasible) {
            ASSERT_FALSE(p.keep_all.feasible || p.recompute_all.feasible || p.moving_nothing.feasible);
            continue;
        }
        ++feasible;
        for (const evaluation *e : {&p.keep_all, &p.recompute_all, &p.moving_nothing}) {
            if (e->feasible) {
                ASSERT_LE(p.predicted.step_ns, e->step_ns) << "sequence " << i;
            }
        }
        ASSERT_GE(p.predicted.step_ns, p.bound_ns * (1 - 1e-9));
        evaluator e(m);
        ASSERT_EQ(e.evaluate(p.chosen, b).step_ns, p.predicted.step_ns);
        for (uint32_t t = 0; t < m.tensors.size(); ++t) {
            ASSERT_TRUE(p.chosen.placement[t] != tensor_placement::recompute || m.tensors[t].can_recompute);
        }
        const planned again = first.make(b);
        ASSERT_EQ(again.chosen.placement, p.chosen.placement) << "sequence " << i;
        ASSERT_EQ(again.chosen.staging_bytes, p.chosen.staging_bytes);
    }
    EXPECT_GT(feasible, 150);
}

TEST(schedule_planner, a_budget_that_is_too_small_comes_with_one_that_is_not) {
    population draw(206);
    int infeasible = 0;
    for (int i = 0; i < 200; ++i) {
        const step_model m = random_sequence(draw);
        plan_budget b = random_budget(draw, m);
        b.device_bytes /= 4;
        planner p(m);
        const planned made = p.make(b);
        if (made.feasible) {
            continue;
        }
        ++infeasible;
        ASSERT_GT(made.smallest_feasible_bytes, b.device_bytes) << "sequence " << i;
        b.device_bytes = made.smallest_feasible_bytes;
        ASSERT_TRUE(p.make(b).feasible) << "sequence " << i;
    }
    EXPECT_GT(infeasible, 50);
}

}  // namespace
}  // namespace ebb
