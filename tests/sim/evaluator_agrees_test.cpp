// The evaluator says what the runtime does: the same plan, evaluated and played on the simulated device through the
// real runtime, takes the same time to within one chunk's transfer, in both memory modes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "schedule/evaluator.hpp"
#include "simulate/step_player.hpp"

namespace ebb::test {
namespace {

constexpr uint64_t k_unit = 1 << 20;  // bytes

struct scenario {
    step_model model;
    plan chosen;
    plan_budget budget;
};

struct random_case {
    std::mt19937_64 random;
    double uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); }
    uint32_t whole(uint32_t low, uint32_t high) { return std::uniform_int_distribution<uint32_t>(low, high)(random); }
};

// Layers of a few tensors each; some chains, some with micro-batches one after the other.
step_model random_model(random_case &r, bool equal_sizes) {
    step_model m;
    const uint32_t layers = r.whole(3, 20);
    const uint32_t per_layer = r.whole(1, 3);
    const uint32_t micro_batches = r.whole(1, 3);
    const uint64_t one_size = r.whole(1, 64) * k_unit;
    const auto add = [&](step_event_kind what, uint32_t tensor, double time_ns = 0) {
        step_event e;
        e.what = what;
        e.tensor = tensor;
        e.time_ns = time_ns;
        m.events.push_back(e);
    };
    const bool holds = r.whole(0, 2) == 0;
    uint32_t held_until = 0;  // layers
    for (uint32_t mb = 0; mb < micro_batches; ++mb) {
        const auto first = static_cast<uint32_t>(m.tensors.size());
        for (uint32_t l = 0; l < layers; ++l) {
            if (holds && held_until == 0 && r.whole(0, 2) == 0) {
                add(step_event_kind::hold_begin, k_no_index, std::floor(r.uniform(1e5, 1e7)));
                held_until = r.whole(1, 3);
            }
            for (uint32_t k = 0; k < per_layer; ++k) {
                step_tensor t;
                t.name = "layer." + std::to_string(l) + "/t" + std::to_string(k);
                t.layer = l;
                t.micro_batch = mb;
                t.size_bytes = equal_sizes ? one_size : r.whole(1, 64) * k_unit;
                if (m.tensors.size() > first && r.uniform(0, 1) < 0.4) {
                    t.can_recompute = true;
                    t.recompute_ns = std::floor(r.uniform(1e5, 2e6));
                    if (r.uniform(0, 1) < 0.7) {
                        t.recompute_from = {static_cast<uint32_t>(m.tensors.size() - 1)};
                    }
                }
                m.tensors.push_back(t);
                add(step_event_kind::work, k_no_index, std::floor(r.uniform(1e5, 3e6)));
                add(step_event_kind::produce, static_cast<uint32_t>(m.tensors.size() - 1));
            }
            if (held_until != 0 && --held_until == 0) {
                add(step_event_kind::hold_end, k_no_index);
            }
        }
        for (auto t = static_cast<uint32_t>(m.tensors.size()); t-- > first;) {
            if (held_until != 0 && --held_until == 0) {
                add(step_event_kind::hold_end, k_no_index);
            }
            add(step_event_kind::use, t);
            add(step_event_kind::work, k_no_index, std::floor(r.uniform(2e5, 6e6)));
            add(step_event_kind::release, t);
        }
    }
    if (held_until != 0) {
        add(step_event_kind::hold_end, k_no_index);
    }
    return m;
}

scenario random_scenario(uint64_t seed, memory_mode mode) {
    random_case r{std::mt19937_64(seed)};
    scenario s;
    s.model = random_model(r, seed % 3 == 0);
    uint64_t all_bytes = 0;
    uint64_t largest_bytes = 0;
    const double keep = r.uniform(0, 0.7);
    uint64_t kept_bytes = 0;
    const double again = seed % 2 == 0 ? 0 : 0.6;
    for (uint32_t i = 0; i < s.model.tensors.size(); ++i) {
        const step_tensor &t = s.model.tensors[i];
        const bool kept = r.uniform(0, 1) < keep;
        // Not from another that is computed again: a training loop would have to do both in one place.
        const bool from_nowhere =
            !t.recompute_from.empty() && s.chosen.placement[t.recompute_from[0]] == tensor_placement::recompute;
        const bool recomputed = !kept && t.can_recompute && !from_nowhere && r.uniform(0, 1) < again;
        s.chosen.placement.push_back(kept         ? tensor_placement::keep
                                     : recomputed ? tensor_placement::recompute
                                                  : tensor_placement::offload);
        all_bytes += t.size_bytes;
        kept_bytes += kept ? t.size_bytes : 0;
        largest_bytes = std::max(largest_bytes, t.size_bytes);
    }
    s.budget.mode = mode;
    s.budget.exact_slots = true;
    s.chosen.staging_bytes =
        mode == memory_mode::one_pool
            ? 0
            : largest_bytes + static_cast<uint64_t>(r.uniform(0, 0.5) * static_cast<double>(all_bytes)) / 512 * 512;
    s.budget.device_bytes = kept_bytes + s.chosen.staging_bytes + 2 * largest_bytes +
                            static_cast<uint64_t>(r.uniform(0, 0.6) * static_cast<double>(all_bytes)) / 512 * 512;
    s.budget.d2h = {r.uniform(5, 60) * 1e9, std::floor(r.uniform(0, 5)) * 1e3, 16 * k_unit};
    s.budget.h2d = {r.uniform(5, 60) * 1e9, std::floor(r.uniform(0, 5)) * 1e3, 16 * k_unit};
    return s;
}

sim_machine machine_of(const plan_budget &b) {
    sim_machine m;
    m.host_bytes = uint64_t{1} << 40U;
    m.d2h.bytes_per_second = b.d2h.bytes_per_second;
    m.d2h.latency_ps = static_cast<sim_time_ps>(b.d2h.latency_ns * 1e3);
    m.h2d.bytes_per_second = b.h2d.bytes_per_second;
    m.h2d.latency_ps = static_cast<sim_time_ps>(b.h2d.latency_ns * 1e3);
    m.host_call_ps = 1;
    return m;
}

double chunk_ns(const plan_link &link) {
    return link.transfer_ns(link.chunk_bytes);
}

class evaluator_agrees : public ::testing::TestWithParam<memory_mode> {};

TEST_P(evaluator_agrees, with_the_runtime_on_random_plans) {
    uint32_t compared = 0;
    for (uint64_t seed = 1; compared < 1000; ++seed) {
        ASSERT_LT(seed, 3000U) << "too few of the plans are feasible";
        const scenario s = random_scenario(seed, GetParam());
        ASSERT_TRUE(evaluator::check(s.model).ok()) << evaluator::check(s.model).text();
        evaluator e(s.model);
        const evaluation said = e.evaluate(s.chosen, s.budget);
        if (!said.feasible) {
            continue;
        }
        ++compared;
        play_options o;
        o.machine = machine_of(s.budget);
        o.mode = GetParam();
        o.fixed = &s.chosen;
        o.core.min_offload_bytes = 1;
        o.core.chunk_bytes = s.budget.d2h.chunk_bytes;
        o.core.device_budget_bytes = s.budget.device_bytes;
        o.core.staging_bytes = s.chosen.staging_bytes;
        result<std::unique_ptr<step_player>> player = step_player::make(s.model, o);
        ASSERT_TRUE(player.ok()) << "seed " << seed << ": " << player.why().text();
        double played_ns = 0;
        uint64_t no_slot = 0;
        for (int step = 0; step < 4; ++step) {
            const result<step_player::step_result> played = player.value()->play();
            ASSERT_TRUE(played.ok()) << "seed " << seed << ": " << played.why().text();
            played_ns = played.value().step_ns;
            no_slot = played.value().no_slot;
        }
        EXPECT_EQ(no_slot, 0U) << "seed " << seed;
        EXPECT_NEAR(played_ns, said.step_ns, std::max(chunk_ns(s.budget.d2h), chunk_ns(s.budget.h2d)))
            << "seed " << seed << ", without a wait it is " << said.compute_ns << ", d2h " << said.exposed_d2h_ns
            << ", h2d " << said.exposed_h2d_ns << ", recompute " << said.recompute_ns << "; played: prefetched "
            << player.value()->statistics().reloads_prefetched << ", on demand "
            << player.value()->statistics().reloads_on_demand << ", dropped "
            << player.value()->statistics().prefetches_dropped << ", forwarded "
            << player.value()->statistics().forwarded_count << ", mismatches "
            << player.value()->statistics().order_mismatches;
    }
}

INSTANTIATE_TEST_SUITE_P(modes, evaluator_agrees, ::testing::Values(memory_mode::one_pool, memory_mode::staging),
                         [](const auto &p) { return p.param == memory_mode::one_pool ? "one_pool" : "staging"; });

}  // namespace
}  // namespace ebb::test
