// A property of the simulator, over random layers: a copy that is confined to its own loop iteration exposes exactly
// what is left of it when its first user is reached, and copies that are pipelined by one iteration expose nothing
// where the copies of an iteration are shorter than its compute.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "baseline_chain.hpp"
#include "policy/baseline.hpp"

namespace ebb::baselines {
namespace {

struct random_layers {
    std::mt19937_64 random;

    double time(double low, double high) {
        return std::floor(std::uniform_real_distribution<double>(low, high)(random) * 1000) / 1000;
    }
    uint64_t whole(uint64_t low, uint64_t high) { return std::uniform_int_distribution<uint64_t>(low, high)(random); }
    std::vector<chain_layer> layers(double longest) {
        std::vector<chain_layer> made(whole(2, 16));
        for (chain_layer &l : made) {
            l.pieces.resize(whole(1, 5));
            for (piece &p : l.pieces) {
                p = {time(0.1, longest), whole(1, 8), time(0.1, longest)};
            }
            l.forward_tail = time(0, longest);
            l.backward_lead = time(0, longest);
        }
        return made;
    }
};

// In units of time, for links that take `out` and `in` per MiB.
double left_of_copies(const std::vector<chain_layer> &layers, double out, double in) {
    double left = 0;
    for (const chain_layer &l : layers) {
        double now = 0;
        double copied = 0;
        for (const piece &p : l.pieces) {
            now += p.forward;
            copied = std::max(copied, now) + out * static_cast<double>(p.mib);
        }
        left += std::max(0.0, copied - (now + l.forward_tail));
        now = l.backward_lead;
        copied = 0;
        for (size_t i = l.pieces.size(); i-- > 0;) {
            copied += in * static_cast<double>(l.pieces[i].mib);
            left += std::max(0.0, copied - now);
            now = std::max(now, copied) + l.pieces[i].backward;
        }
    }
    return left;
}

constexpr double k_ns = 1e-6;  // of a unit
constexpr uint64_t k_unlimited = 0;

TEST(xla_property, a_copy_in_its_own_iteration_exposes_what_is_left_of_it) {
    uint32_t exposing = 0;
    for (uint64_t seed = 1; seed <= 2000; ++seed) {
        random_layers r{std::mt19937_64(seed)};
        const std::vector<chain_layer> layers = r.layers(3);
        const double out = r.time(0.05, 1);
        const double in = r.time(0.05, 1);
        const result<baseline_result> played =
            make_xla_own_iteration()->play(chain_step(layers), machine_with(out, in), k_no_limit, {"", k_unlimited, 0});
        ASSERT_TRUE(played.ok()) << played.why().text();
        const double left = left_of_copies(layers, out, in);
        // Times are whole nanoseconds, per copy whole picoseconds.
        ASSERT_NEAR(played.value().exposed_ns / k_unit_ns, left, 3 * k_ns) << "seed " << seed;
        exposing += left > 0 ? 1 : 0;
    }
    EXPECT_GT(exposing, 1000U);
}

TEST(xla_property, pipelined_copies_expose_nothing_where_they_are_shorter_than_iterations) {
    uint32_t would_expose = 0;
    for (uint64_t seed = 1; seed <= 2000; ++seed) {
        random_layers r{std::mt19937_64(seed)};
        const std::vector<chain_layer> layers = r.layers(3);
        // Rates at which no iteration's copies are longer than any iteration.
        double shortest_forward = 1e9, shortest_backward = 1e9;
        uint64_t most_mib = 0;
        for (const chain_layer &l : layers) {
            double forward = l.forward_tail, backward = l.backward_lead;
            uint64_t mib = 0;
            for (const piece &p : l.pieces) {
                forward += p.forward;
                backward += p.backward;
                mib += p.mib;
            }
            shortest_forward = std::min(shortest_forward, forward);
            shortest_backward = std::min(shortest_backward, backward);
            most_mib = std::max(most_mib, mib);
        }
        const double part = r.time(0.5, 1);
        const double out = part * shortest_forward / static_cast<double>(most_mib);
        const double in = part * shortest_backward / static_cast<double>(most_mib);
        const built_step step = chain_step(layers, std::max(shortest_forward, shortest_backward));
        const result<baseline_result> played =
            make_xla_pipelined()->play(step, machine_with(out, in), k_no_limit, {"", k_unlimited, 0});
        ASSERT_TRUE(played.ok()) << played.why().text();
        ASSERT_NEAR(played.value().exposed_ns / k_unit_ns, 0, 3 * k_ns) << "seed " << seed;
        would_expose += left_of_copies(layers, out, in) > 0 ? 1 : 0;
    }
    EXPECT_GT(would_expose, 1000U);
}

}  // namespace
}  // namespace ebb::baselines
