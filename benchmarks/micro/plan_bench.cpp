// Planning a transformer's step, 20 tensors a layer with their recompute dependences, into three tenths of what it
// saves and over 50 GB/s: how long a plan takes, how that grows with the number of layers, and one evaluation alone.
//
// The gap to the lower bound is a counter beside the time: a plan that is made faster and worse would show.
#include <benchmark/benchmark.h>

#include <cstdint>

#include "../../tests/support/transformer_model.hpp"
#include "base/check.hpp"
#include "schedule/planner.hpp"

namespace {

ebb::plan_budget budget_for(const ebb::step_model &m, ebb::memory_mode mode) {
    double saved_bytes = 0;
    for (const ebb::step_tensor &t : m.tensors) {
        saved_bytes += static_cast<double>(t.size_bytes);
    }
    ebb::plan_budget b;
    b.mode = mode;
    b.device_bytes = static_cast<uint64_t>(0.3 * saved_bytes);
    b.d2h.bytes_per_second = b.h2d.bytes_per_second = 50e9;
    return b;
}

// From the model alone: what a planner works out of it once is part of it.
void make_plans(benchmark::State &state, ebb::memory_mode mode) {
    const ebb::step_model m = ebb::transformer_model(static_cast<uint32_t>(state.range(0)));
    const ebb::plan_budget b = budget_for(m, mode);
    double gap = 0;
    for (auto _ : state) {
        const ebb::planned p = ebb::planner(m).make(b);
        EBB_CHECK(p.feasible);
        gap = p.gap();
    }
    state.counters["gap"] = gap;
}

void plan_one_pool(benchmark::State &state) {
    make_plans(state, ebb::memory_mode::one_pool);
}
void plan_staging(benchmark::State &state) {
    make_plans(state, ebb::memory_mode::staging);
}

void evaluate_plan(benchmark::State &state) {
    const ebb::step_model m = ebb::transformer_model(static_cast<uint32_t>(state.range(0)));
    const ebb::plan_budget b = budget_for(m, ebb::memory_mode::one_pool);
    const ebb::planned p = ebb::planner(m).make(b);
    ebb::evaluator judge(m);
    for (auto _ : state) {
        benchmark::DoNotOptimize(judge.evaluate(p.chosen, b).step_ns);
    }
}

BENCHMARK(plan_one_pool)->Name("plan/one_pool")->Arg(63)->Arg(126)->Arg(252)->Arg(504)->Unit(benchmark::kMillisecond);
BENCHMARK(plan_staging)->Name("plan/staging")->Arg(126)->Unit(benchmark::kMillisecond);
BENCHMARK(evaluate_plan)->Name("plan/evaluate")->Arg(126)->Unit(benchmark::kMicrosecond);

}  // namespace
