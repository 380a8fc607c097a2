// A host that enqueues two whole steps before it looks at any result, and one that waits after every call, make the
// same copies in the same order, the same peaks and the same bytes.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "training_rig.hpp"

namespace ebb::test {
namespace {

constexpr uint64_t k_unit_bytes = 64 * 1024;
constexpr uint64_t k_layers = 8;

std::string layer_name(uint64_t l) {
    return "layer." + std::to_string(l);
}
uint64_t gate_bytes(uint64_t l) {
    return k_unit_bytes * (1 + l % 3);
}

void forward_all(rig &r, uint64_t micro_batch = 0, uint64_t stage = 0, uint64_t skipped = ~uint64_t{0}) {
    for (uint64_t l = 0; l < k_layers; ++l) {
        r.forward(layer_name(l), "input", k_unit_bytes, micro_batch, stage);
        if (l != skipped) {
            r.forward(layer_name(l), "gate", gate_bytes(l), micro_batch, stage);
        }
    }
}

void backward_all(rig &r, uint64_t micro_batch = 0, uint64_t stage = 0, uint64_t skipped = ~uint64_t{0}) {
    for (uint64_t l = k_layers; l-- > 0;) {
        if (l != skipped) {
            r.backward(layer_name(l), "gate", micro_batch, stage);
        }
        r.backward(layer_name(l), "input", micro_batch, stage);
    }
}

void chain(rig &r, uint64_t) {
    forward_all(r);
    backward_all(r);
}

void accumulate(rig &r, uint64_t micro_batches) {
    for (uint64_t m = 0; m < micro_batches; ++m) {
        forward_all(r, m);
        backward_all(r, m);
    }
}

// One stage's view of 1F1B: `ahead` forwards, then one forward and one backward in turn.
void one_f_one_b(rig &r, uint64_t micro_batches, uint64_t ahead, uint64_t stages) {
    const uint64_t items = micro_batches * stages;
    const auto at = [&](uint64_t i, bool back) {
        const uint64_t stage = i / micro_batches;
        return std::pair<uint64_t, uint64_t>{i % micro_batches, back ? stages - 1 - stage : stage};
    };
    uint64_t forward = 0;
    uint64_t backward = 0;
    // Stage s of micro-batch m must have run forward before its backward: run far enough ahead.
    const uint64_t start = ahead + (stages - 1) * micro_batches;
    while (backward < items) {
        if (forward < items && forward < backward + start) {
            forward_all(r, at(forward, false).first, at(forward, false).second);
            ++forward;
            continue;
        }
        backward_all(r, at(backward, true).first, at(backward, true).second);
        ++backward;
    }
}

struct scenario {
    const char *name;
    std::function<void(rig &, uint64_t step)> run;
};

std::vector<scenario> scenarios() {
    return {
        {"chain", chain},
        {"accumulation", [](rig &r, uint64_t) { accumulate(r, 3); }},
        {"one_f_one_b", [](rig &r, uint64_t) { one_f_one_b(r, 4, 2, 1); }},
        {"interleaved", [](rig &r, uint64_t) { one_f_one_b(r, 3, 2, 2); }},
        {"missing_save",
         [](rig &r, uint64_t step) {
             const uint64_t skipped = step < 2 ? ~uint64_t{0} : step % k_layers;
             forward_all(r, 0, 0, skipped);
             backward_all(r, 0, 0, skipped);
         }},
        {"changing_micro_batches", [](rig &r, uint64_t step) { accumulate(r, step % 2 == 0 ? 4 : 3); }},
    };
}

struct outcome {
    std::vector<trace_entry> copies;
    ebb_statistics statistics{};
};

rig::options rig_options(const runtime_options &core, bool waits) {
    rig::options o;
    o.core = core;
    o.core.min_offload_bytes = 1;
    o.host.capacity_bytes = 64ULL << 20U;
    o.wait_after_every_call = waits;
    return o;
}

outcome run(const scenario &s, const runtime_options &core, bool waits) {
    rig r(rig_options(core, waits));
    constexpr uint64_t k_steps = 6;
    for (uint64_t step = 0; step < k_steps; ++step) {
        r.step();
        s.run(r, step);
        if (step % 2 == 1) {
            r.synchronize();  // two whole steps ahead, not more
        }
    }
    r.step(EBB_PHASE_EVALUATE);
    r.synchronize();
    outcome out{r.device().entries(call_kind::copy), r.stats()};
    EXPECT_EQ(out.statistics.live_activations, 0U);
    EXPECT_EQ(out.statistics.pinned_used_bytes, 0U);
    EXPECT_EQ(out.statistics.kept_bytes, 0U);
    EXPECT_EQ(out.statistics.source_bytes, 0U);
    EXPECT_EQ(out.statistics.staging_used_bytes, 0U);
    return out;
}

std::vector<runtime_options> option_sets() {
    std::vector<runtime_options> sets;
    runtime_options o;
    o.device_budget_bytes = 24 * k_unit_bytes;
    sets.push_back(o);  // automatic
    o.prefetch_bytes = k_one_layer;
    sets.push_back(o);
    o.prefetch_bytes = 6 * k_unit_bytes;
    o.lanes = 3;
    o.chunk_bytes = 8192;
    sets.push_back(o);
    o = {};
    o.device_budget_bytes = 14 * k_unit_bytes;
    o.prefetch_bytes = k_none_bytes;
    o.source_bytes = k_none_bytes;
    sets.push_back(o);
    o = {};
    o.device_budget_bytes = 40 * k_unit_bytes;
    o.keep_last = 3;
    o.verify = true;
    sets.push_back(o);
    return sets;
}

class host_runs_ahead : public on_every_machine_with<size_t> {};

TEST_P(host_runs_ahead, changes_nothing) {
    const scenario s = scenarios()[parameter()];
    size_t number = 0;
    for (const runtime_options &core : option_sets()) {
        SCOPED_TRACE(std::string(s.name) + ", options " + std::to_string(number++));
        const outcome ahead = run(s, core, false);
        const outcome waiting = run(s, core, true);
        ASSERT_EQ(ahead.copies.size(), waiting.copies.size());
        for (size_t i = 0; i < ahead.copies.size(); ++i) {
            ASSERT_EQ(ahead.copies[i], waiting.copies[i])
                << i << ": " << to_string(ahead.copies[i]) << " against " << to_string(waiting.copies[i]);
        }
        EXPECT_EQ(ahead.statistics.device_peak_bytes, waiting.statistics.device_peak_bytes);
        EXPECT_EQ(ahead.statistics.source_peak_bytes, waiting.statistics.source_peak_bytes);
        EXPECT_EQ(ahead.statistics.staging_peak_bytes, waiting.statistics.staging_peak_bytes);
        EXPECT_EQ(ahead.statistics.pinned_peak_bytes, waiting.statistics.pinned_peak_bytes);
        EXPECT_EQ(ahead.statistics.forwarded_count, waiting.statistics.forwarded_count);
        EXPECT_EQ(ahead.statistics.reloads_prefetched, waiting.statistics.reloads_prefetched);
        EXPECT_EQ(ahead.statistics.reloads_on_demand, waiting.statistics.reloads_on_demand);
        EXPECT_EQ(ahead.statistics.given_up_bytes, waiting.statistics.given_up_bytes);
        EXPECT_GT(ahead.copies.size(), 0U);
        EXPECT_LE(ahead.statistics.device_peak_bytes, core.device_budget_bytes);
    }
}

// On every machine, each scenario.
const auto k_all =
    ::testing::Combine(::testing::ValuesIn(machine_kinds()), ::testing::Range(size_t{0}, scenarios().size()));
std::string case_name(const ::testing::TestParamInfo<std::tuple<machine_kind, size_t>> &at) {
    return ::testing::PrintToString(std::get<0>(at.param)) + "_" + scenarios()[std::get<1>(at.param)].name;
}

INSTANTIATE_TEST_SUITE_P(on, host_runs_ahead, k_all, case_name);

// After the recorded step no reload is on demand because of a missing save or fewer micro-batches, and what is
// learned like a chain is prefetched like one.
class learned : public on_every_machine_with<size_t> {};

TEST_P(learned, reloads_are_prefetched_or_forwarded) {
    const scenario s = scenarios()[parameter()];
    runtime_options core;
    core.device_budget_bytes = 24 * k_unit_bytes;
    rig r(rig_options(core, false));
    r.step();
    s.run(r, 0);
    r.step();
    const uint64_t on_demand_in_first = r.stats().reloads_on_demand;
    EXPECT_GT(on_demand_in_first, 0U);
    for (uint64_t step = 1; step < 6; ++step) {
        s.run(r, step);
        r.step();
    }
    EXPECT_EQ(r.stats().reloads_on_demand, on_demand_in_first);
    EXPECT_GT(r.stats().reloads_prefetched, 0U);
    EXPECT_EQ(r.stats().order_mismatches, 0U);
}

INSTANTIATE_TEST_SUITE_P(on, learned, k_all, case_name);

}  // namespace
}  // namespace ebb::test
