// Faults seen in the field, on links that others use too: collectives (S3), small copies (S4) and kernels that live on
// HBM's rate (S8). Each test runs the same step with what should help and without it; it fails where that makes no
// difference, or where what helps does not reach the whole of it.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "field_bench.hpp"

namespace ebb::test {
namespace {

constexpr uint64_t k_mib = uint64_t{1} << 20U;
constexpr uint64_t k_gib = uint64_t{1} << 30U;
constexpr double k_ms = 1e6;

sim_machine plain_links(double gb_per_second) {
    sim_machine m;
    m.device_bytes = 80 * k_gib;
    m.host_bytes = 200 * k_gib;
    m.d2h = {gb_per_second * 1e9, 0, 5'000'000, {}};
    m.h2d = {gb_per_second * 1e9, 0, 5'000'000, {}};
    return m;
}

// ------------------------------------------------------------------------------------------ S3: collectives --

constexpr double k_collective_ns = 10 * k_ms;

struct collective_step {
    std::vector<double> collective_ns;
    sim_time_ps copied_meanwhile_ps = 0;
    uint64_t moved_bytes = 0;
    uint64_t offloaded = 0;
};

// Forward and backward of eight layers, with a collective of its own stream beside two layers of each.
class step_with_collectives {
public:
    explicit step_with_collectives(bool bracketed) : bracketed_(bracketed), bench_(machine(), core()) {
        compute_ = bench_.stream();
        beside_ = bench_.stream();
        for (event_id *e : {&begin_, &end_, &joined_}) {
            *e = bench_.event();
        }
        for (uint32_t l = 0; l < k_layers; ++l) {
            memory_.push_back(bench_.memory(k_size_bytes));
        }
    }
    collective_step play(int steps) {
        for (int s = 0; s < steps; ++s) {
            play_step();
        }
        bench_.device().synchronize();
        seen_.moved_bytes = bench_.statistics().d2h_bytes + bench_.statistics().h2d_bytes;
        seen_.offloaded = bench_.statistics().offloaded_count;
        return seen_;
    }

private:
    static constexpr uint32_t k_layers = 8;
    static constexpr uint64_t k_size_bytes = 64 * k_mib;

    static sim_machine machine() {
        sim_machine m = plain_links(50);
        m.collective_loss = 0.1;
        return m;
    }
    static runtime_options core() {
        runtime_options o;
        o.staging_bytes = 3 * k_size_bytes;
        o.device_budget_bytes = 7 * k_size_bytes;  // of eight: some are given up, none while the link is wanted
        o.chunk_bytes = 16 * k_mib;
        return o;
    }
    void play_step() {
        bench_.step();
        live_.assign(k_layers, 0);
        for (uint32_t l = 0; l < k_layers; ++l) {
            if (l == 3) {
                begin_collective();
            }
            bench_.work(compute_, 2 * k_ms);
            live_[l] = bench_.offload("layer." + std::to_string(l), memory_[l], k_size_bytes, compute_).activation;
            if (l == 4) {
                end_collective();
            }
        }
        for (uint32_t l = k_layers; l-- > 0;) {
            if (l == 3) {
                begin_collective();
            }
            const ebb_claim claim = bench_.reload(live_[l], compute_);
            bench_.work(compute_, 4 * k_ms);
            bench_.end(claim, live_[l], compute_);
            if (l == 2) {
                end_collective();
            }
        }
    }
    // Nothing else is under way; the compute stream has something to do until all of it is enqueued.
    void begin_collective() {
        bench_.device().synchronize();
        copied_before_ps_ = bench_.copying_ps();
        bench_.work(compute_, k_ms);
        bench_.mark(joined_, compute_);
        bench_.wait(beside_, joined_);
        bench_.mark(begin_, beside_);
        if (bracketed_) {
            bench_.begin_span(beside_, k_gib);
        }
        bench_.collective(beside_, k_collective_ns);
    }
    void end_collective() {
        bench_.mark(end_, beside_);
        if (bracketed_) {
            bench_.end_span(beside_);
        }
        seen_.collective_ns.push_back(bench_.between_ns(begin_, end_));
        seen_.copied_meanwhile_ps += bench_.copying_ps() - copied_before_ps_;
    }

    bool bracketed_;
    field_bench bench_;
    stream_id compute_{}, beside_{};
    event_id begin_{}, end_{}, joined_{};
    std::vector<std::byte *> memory_;
    std::vector<ebb_activation> live_;
    sim_time_ps copied_before_ps_ = 0;
    collective_step seen_;
};

// Fails where the runtime copies in a bracket (it then takes longer than alone), and where the brackets lose copies or
// the simulated machine does not make them worth while.
TEST(field_cases, s3_a_collective_in_a_bracket_takes_what_it_takes_alone) {
    const collective_step with = step_with_collectives(true).play(3);
    const collective_step without = step_with_collectives(false).play(3);
    ASSERT_EQ(with.collective_ns.size(), 6U);
    for (const double time_ns : with.collective_ns) {
        EXPECT_EQ(time_ns, k_collective_ns);
    }
    EXPECT_EQ(with.copied_meanwhile_ps, 0U);
    EXPECT_GT(without.copied_meanwhile_ps, 0U);
    // A forward one: both copies that are asked for meanwhile run beside it.
    const double copies_ns = 2 * 64.0 * static_cast<double>(k_mib) / 50;
    EXPECT_NEAR(without.collective_ns[0], k_collective_ns + 0.1 * copies_ns, 0.001 * k_collective_ns);
    EXPECT_GT(without.collective_ns[4], k_collective_ns);
    EXPECT_GT(with.offloaded, 0U);
    EXPECT_EQ(with.moved_bytes, without.moved_bytes);
}

// ------------------------------------------------------------------------------------------- S4: small copies --

struct small_copy {
    double waited_ns = 0;       // beyond what it takes alone
    double reload_left_ns = 0;  // of the reload, when it was asked for
    bool after_the_reload = false;
};

// A reload of 2 GiB, and a copy of 4 KiB on a stream of somebody else that is ready `asked_ns` later.
small_copy copy_beside_a_reload(const sim_machine &machine, uint64_t chunk_bytes, double asked_ns) {
    constexpr uint64_t k_large_bytes = 2 * k_gib;
    constexpr uint64_t k_small_bytes = 4096;
    runtime_options core;
    core.chunk_bytes = chunk_bytes;
    core.staging_bytes = k_large_bytes + k_mib;
    core.source_bytes = k_none_bytes;  // given up in the offload call
    field_bench bench(machine, core);
    const stream_id compute = bench.stream();
    const stream_id other = bench.stream();
    const event_id asked = bench.event(), there = bench.event(), reloaded = bench.event();
    std::byte *large = bench.memory(k_large_bytes);
    std::byte *small = bench.memory(k_small_bytes);
    void *pinned = bench.device().map_host(k_small_bytes).value();

    bench.step();
    const ebb_activation saved = bench.offload("large", large, k_large_bytes, compute).activation;
    bench.device().synchronize();
    bench.reload(saved, compute);
    bench.work(other, asked_ns);
    bench.mark(asked, other);
    EXPECT_TRUE(bench.device().copy(other, copy_direction::h2d, small, pinned, k_small_bytes).ok());
    bench.mark(there, other);
    bench.mark(reloaded, compute);
    bench.device().synchronize();
    EXPECT_EQ(bench.statistics().h2d_bytes, k_large_bytes);

    const double alone_ns = static_cast<double>(machine.h2d.latency_ps) / 1e3 +
                            static_cast<double>(k_small_bytes) * 1e9 / machine.h2d.bytes_per_second;
    small_copy seen;
    seen.waited_ns = bench.between_ns(asked, there) - alone_ns;
    seen.after_the_reload = bench.device().elapsed_ns(reloaded, there).value() > 0;
    seen.reload_left_ns = bench.between_ns(asked, reloaded);
    return seen;
}

// Fails where a reload is one copy, or where its chunks are enqueued so that nobody gets in between.
TEST(field_cases, s4_a_bulk_reload_holds_a_small_copy_up_for_one_chunk) {
    const sim_machine machine = plain_links(52);
    constexpr uint64_t k_chunk_bytes = 16 * k_mib;
    const double chunk_ns = static_cast<double>(machine.h2d.latency_ps) / 1e3 +
                            static_cast<double>(k_chunk_bytes) * 1e9 / machine.h2d.bytes_per_second;
    constexpr double k_rounding_ns = 2;  // of elapsed times, down to whole nanoseconds
    double longest_ns = 0;
    for (double asked_ns = 0.13 * k_ms; asked_ns < 39 * k_ms; asked_ns *= 1.37) {
        const small_copy chunks = copy_beside_a_reload(machine, k_chunk_bytes, asked_ns);
        EXPECT_LE(chunks.waited_ns, chunk_ns + k_rounding_ns) << "asked for after " << asked_ns << " ns";
        EXPECT_FALSE(chunks.after_the_reload) << "asked for after " << asked_ns << " ns";
        longest_ns = std::max(longest_ns, chunks.waited_ns);

        const small_copy whole = copy_beside_a_reload(machine, 2 * k_gib, asked_ns);
        EXPECT_TRUE(whole.after_the_reload) << "asked for after " << asked_ns << " ns";
        EXPECT_NEAR(whole.waited_ns, whole.reload_left_ns, k_rounding_ns);
    }
    EXPECT_GT(longest_ns, 0.5 * chunk_ns) << "none of these copies came early in a chunk: the test shows little";
}

// ------------------------------------------------------------------------------------- S8: kernels on HBM's rate --

struct kernel_pair {
    double memory_bound_ns = 2 * k_ms;  // uses 95 % of HBM's rate
    double compute_bound_ns = 5 * k_ms;
};
constexpr uint32_t k_pairs = 12;

// Layers of one kernel of each kind. In forward the layer's input is saved before the memory-bound one, in backward it
// is released before it: a copy may run beside either. Gives the time of the last step's work.
double time_of_pairs(const kernel_pair &pair, bool bracketed) {
    constexpr uint64_t k_size_bytes = 128 * k_mib;
    sim_machine machine = plain_links(50);
    machine.hbm_bytes_per_second = 400e9;  // a copy takes an eighth of it
    runtime_options core;
    core.staging_bytes = 4 * k_size_bytes;
    core.device_budget_bytes = 8 * k_size_bytes;
    field_bench bench(machine, core);
    const stream_id compute = bench.stream();
    const event_id begin = bench.event(), end = bench.event();
    std::vector<std::byte *> memory;
    for (uint32_t l = 0; l < k_pairs; ++l) {
        memory.push_back(bench.memory(k_size_bytes));
    }
    const auto span = [&](bool begins) {
        if (bracketed && begins) {
            bench.begin_span(compute, 0);
        } else if (bracketed) {
            bench.end_span(compute);
        }
    };
    double step_ns = 0;
    for (int s = 0; s < 4; ++s) {
        bench.device().synchronize();
        bench.step();
        std::vector<ebb_activation> live;
        bench.mark(begin, compute);
        for (uint32_t l = 0; l < k_pairs; ++l) {
            span(true);
            live.push_back(bench.offload("layer." + std::to_string(l), memory[l], k_size_bytes, compute).activation);
            bench.work(compute, pair.memory_bound_ns, 0.95);
            span(false);
            bench.work(compute, pair.compute_bound_ns, 0.1);
        }
        for (uint32_t l = k_pairs; l-- > 0;) {
            const ebb_claim claim = bench.reload(live[l], compute);
            bench.work(compute, pair.compute_bound_ns, 0.1);
            span(true);
            bench.end(claim, live[l], compute);
            bench.work(compute, pair.memory_bound_ns, 0.95);
            span(false);
        }
        bench.mark(end, compute);
        bench.device().synchronize();
        step_ns = bench.between_ns(begin, end);
    }
    EXPECT_GT(bench.statistics().h2d_bytes, 4 * k_size_bytes) << "there was nothing to overlap";
    return step_ns;
}

// Fails where copies run beside the memory-bound kernels although the caller kept them out of that span, and where
// that does not pay on the simulated machine.
TEST(field_cases, s8_copies_run_beside_compute_bound_kernels_when_there_is_a_choice) {
    const kernel_pair pair;
    const double work_ns = 2 * k_pairs * (pair.memory_bound_ns + pair.compute_bound_ns);
    const double with_ns = time_of_pairs(pair, true);
    const double without_ns = time_of_pairs(pair, false);
    EXPECT_LT(with_ns, without_ns);
    EXPECT_LE(with_ns, work_ns * 1.001) << "all copies fit beside the compute-bound kernels";
    EXPECT_GE(without_ns, work_ns * 1.01);
}

// No choice: the compute-bound kernels are too short for the copies. What somebody waits for is copied all the same, so
// that the step is never longer than work and copies one after the other; but keeping copies out of the longer kernels
// costs then.
TEST(field_cases, s8_without_a_choice_copies_run_where_they_must) {
    kernel_pair pair;
    pair.compute_bound_ns = 0.1 * k_ms;
    const double work_ns = 2 * k_pairs * (pair.memory_bound_ns + pair.compute_bound_ns);
    const double with_ns = time_of_pairs(pair, true);
    const double without_ns = time_of_pairs(pair, false);
    EXPECT_GT(without_ns, work_ns);
    EXPECT_GT(with_ns, without_ns);
    EXPECT_LT(with_ns, work_ns + 2 * k_pairs * 128.0 * static_cast<double>(k_mib) / 50);
}

}  // namespace
}  // namespace ebb::test
