// The best of all 3^L assignments of a chain, by enumeration: what a planner is measured against.
//
// Layers are assigned from the first on. A partial assignment is dropped when it is too slow even if all layers behind
// it were recomputed for nothing: then they hold memory only while they are computed and used, as every assignment of
// them must, and ask nothing of the links. That is a plan of a chain of its own, judged by the evaluator.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "schedule/evaluator.hpp"
#include "support/chain_models.hpp"

namespace ebb::chains {

class exhaustive_plan {
public:
    explicit exhaustive_plan(const chain &c) : budget_(c.planned_for()) {
        for (size_t depth = 1; depth <= c.layers.size(); ++depth) {
            chain relaxed = c;
            for (size_t i = depth; i < c.layers.size(); ++i) {
                relaxed.layers[i].r = 0;
            }
            models_.push_back(std::make_unique<step_model>(model_of(relaxed)));
            judges_.push_back(std::make_unique<evaluator>(*models_.back()));
        }
        plan_.placement.assign(c.layers.size(), tensor_placement::recompute);
    }

    // The least time, if it is below the one given; else that one.
    double best_below(double step_ns) {
        best_ns_ = step_ns;
        assign(0);
        return best_ns_;
    }

private:
    void assign(size_t layer) {
        for (const tensor_placement where :
             {tensor_placement::keep, tensor_placement::offload, tensor_placement::recompute}) {
            plan_.placement[layer] = where;
            const evaluation *e = judges_[layer]->evaluate_below(plan_, budget_, best_ns_ * (1 - 1e-12));
            if (e == nullptr) {
                continue;
            }
            if (layer + 1 == plan_.placement.size()) {
                best_ns_ = e->step_ns;
            } else {
                assign(layer + 1);
            }
        }
        plan_.placement[layer] = tensor_placement::recompute;
    }

    plan_budget budget_;
    std::vector<std::unique_ptr<step_model>> models_;
    std::vector<std::unique_ptr<evaluator>> judges_;
    plan plan_;
    double best_ns_ = 0;
};

}  // namespace ebb::chains
