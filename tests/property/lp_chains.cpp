// Chains of 126 layers, non-uniform and tensor-like, and what the planner makes of them, as JSON: for lp_bound.py,
// which bounds them by a linear program. Times in units of chains::k_unit_ns, sizes in bytes.
//
// usage: lp_chains CHAINS_OF_EACH_KIND
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "schedule/planner.hpp"
#include "support/chain_models.hpp"

namespace {

using ebb::chains::k_unit_ns;

constexpr uint64_t k_layers = 126;

nlohmann::json planned_chain(const char *kind, const ebb::chains::chain &c) {
    const ebb::step_model m = ebb::chains::model_of(c);
    const ebb::plan_budget budget = c.planned_for();
    const ebb::planned p = ebb::planner(m).make(budget);
    nlohmann::json layers = nlohmann::json::array();
    for (size_t i = 0; i < c.layers.size(); ++i) {
        const ebb::chains::layer &l = c.layers[i];
        layers.push_back({{"forward", l.f}, {"backward", l.b}, {"recompute", l.r}, {"bytes", c.size_bytes(i)}});
    }
    const auto per_byte = [](const ebb::plan_link &link) { return 1e9 / link.bytes_per_second / k_unit_ns; };
    return {{"kind", kind},
            {"layers", layers},
            {"d2h_per_byte", per_byte(budget.d2h)},
            {"h2d_per_byte", per_byte(budget.h2d)},
            {"device_bytes", budget.device_bytes},
            {"feasible", p.feasible},
            {"planned", p.predicted.step_ns / k_unit_ns},
            {"bound", p.bound_ns / k_unit_ns}};
}

}  // namespace

int main(int argc, char **argv) {
    const long each = argc == 2 ? std::strtol(argv[1], nullptr, 10) : 0;
    if (each <= 0) {
        std::cerr << "usage: lp_chains CHAINS_OF_EACH_KIND\n";
        return 2;
    }
    nlohmann::json chains = nlohmann::json::array();
    ebb::chains::population draw(301);
    for (long i = 0; i < each; ++i) {
        chains.push_back(planned_chain("non-uniform", draw.non_uniform(k_layers)));
        chains.push_back(planned_chain("tensor-like", draw.tensor_like(k_layers)));
    }
    std::cout << chains.dump() << '\n';
    return 0;
}
