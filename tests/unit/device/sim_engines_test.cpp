// Times on a simulated machine, each computed by hand: rates, latencies, curves, and what is shared.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "device/sim/sim_streams.hpp"

namespace ebb {
namespace {

constexpr sim_time_ps k_us = 1'000'000;
constexpr sim_time_ps k_ms = 1'000 * k_us;

// 100 bytes take 1 ns out, 0.5 ns in.
sim_machine plain_machine() {
    sim_machine machine;
    machine.d2h.bytes_per_second = 100e9;
    machine.h2d.bytes_per_second = 200e9;
    return machine;
}

sim_work copy_out(uint64_t size_bytes) {
    sim_work work;
    work.engine = sim_engine::d2h;
    work.size_bytes = size_bytes;
    return work;
}

sim_work copy_in(uint64_t size_bytes) {
    sim_work work = copy_out(size_bytes);
    work.engine = sim_engine::h2d;
    return work;
}

sim_work kernel(sim_time_ps duration_ps, double hbm_fraction = 0) {
    sim_work work;
    work.duration_ps = duration_ps;
    work.hbm_fraction = hbm_fraction;
    return work;
}

sim_work collective(sim_time_ps duration_ps) {
    sim_work work = kernel(duration_ps);
    work.engine = sim_engine::collective;
    return work;
}

class sim_times {
public:
    explicit sim_times(const sim_machine &machine) : streams_(machine) {}

    sim_streams::index stream() { return streams_.create(); }
    // On a stream of its own, or on the one given; the mark is its end.
    sim_streams::index run(const sim_work &work) { return run(stream(), work); }
    sim_streams::index run(sim_streams::index on, const sim_work &work) {
        streams_.work(on, work);
        return streams_.mark(on);
    }
    sim_time_ps end_of(sim_streams::index mark) {
        EXPECT_TRUE(streams_.run_until_passed(mark));
        return streams_.passed_at(mark);
    }
    sim_streams &streams() { return streams_; }

private:
    sim_streams streams_;
};

// ------------------------------------------------------------------------------------------------- one copy --

TEST(sim_engines, each_direction_has_its_rate) {
    sim_times at(plain_machine());
    const auto out = at.run(copy_out(1'000'000));
    const auto in = at.run(copy_in(1'000'000));
    EXPECT_EQ(at.end_of(out), 10 * k_us);
    EXPECT_EQ(at.end_of(in), 5 * k_us);
}

TEST(sim_engines, each_copy_pays_its_latency) {
    sim_machine machine = plain_machine();
    machine.d2h.latency_ps = 3 * k_us;
    machine.h2d.latency_ps = 2 * k_us;
    sim_times at(machine);
    const auto lane = at.stream();
    at.run(lane, copy_out(1'000'000));
    at.run(lane, copy_out(1'000'000));
    EXPECT_EQ(at.end_of(at.run(lane, copy_out(0))), (3 + 10 + 3 + 10 + 3) * k_us);
    sim_times other(machine);
    EXPECT_EQ(other.end_of(other.run(copy_in(1'000'000))), 7 * k_us);
}

TEST(sim_engines, the_curve_gives_the_rate_by_size) {
    sim_machine machine = plain_machine();
    machine.d2h.curve = {{1'000'000, 0.5}, {3'000'000, 1}};
    const auto alone = [&](uint64_t size_bytes) {
        sim_times at(machine);
        return at.end_of(at.run(copy_out(size_bytes)));
    };
    EXPECT_EQ(alone(500'000), 10 * k_us);    // half of the rate below the first point
    EXPECT_EQ(alone(1'000'000), 20 * k_us);  // and at it
    EXPECT_EQ(alone(1'500'000), 24 * k_us);  // 62.5 GB/s
    EXPECT_EQ(alone(3'000'000), 30 * k_us);
    EXPECT_EQ(alone(6'000'000), 60 * k_us);
}

// Half of it at 100 GB/s, the rest at 50; the next one all of it.
TEST(sim_engines, a_changed_rate_holds_for_what_is_left_of_a_copy_too) {
    sim_times at(plain_machine());
    const auto lane = at.stream();
    const auto out = at.run(lane, copy_out(1'000'000));
    const auto next = at.run(lane, copy_out(1'000'000));
    at.streams().run_until(5 * k_us);
    at.streams().set_link_rates(50e9, 20e9);
    EXPECT_EQ(at.end_of(out), 15 * k_us);
    EXPECT_EQ(at.end_of(next), 35 * k_us);
    EXPECT_EQ(at.end_of(at.run(copy_in(1'000'000))), (35 + 50) * k_us);
}

TEST(sim_engines, a_link_without_limit_takes_its_latency_only) {
    sim_machine machine;
    machine.h2d.latency_ps = 4 * k_us;
    sim_times at(machine);
    EXPECT_EQ(at.end_of(at.run(copy_in(1ULL << 40U))), 4 * k_us);
    EXPECT_EQ(at.end_of(at.run(copy_out(1ULL << 40U))), 4 * k_us);
}

// ------------------------------------------------------------------------------------------------ the engines --

TEST(sim_engines, a_bulk_copy_blocks_a_small_one_behind_it) {
    sim_times at(plain_machine());
    const auto bulk = at.run(copy_in(200'000'000));
    const auto small = at.run(copy_in(200));
    EXPECT_EQ(at.end_of(bulk), k_ms);
    EXPECT_EQ(at.end_of(small), k_ms + 1000);
}

TEST(sim_engines, chunks_let_a_small_copy_in) {
    sim_times at(plain_machine());
    const auto lane = at.stream();
    const auto first = at.run(lane, copy_in(100'000'000));
    const auto second = at.run(lane, copy_in(100'000'000));
    const auto small = at.run(copy_in(200));
    EXPECT_EQ(at.end_of(first), k_ms / 2);
    EXPECT_EQ(at.end_of(small), k_ms / 2 + 1000);
    EXPECT_EQ(at.end_of(second), k_ms + 1000);
}

TEST(sim_engines, an_engine_takes_pieces_as_they_become_ready_not_as_they_were_enqueued) {
    sim_times at(plain_machine());
    const auto produced = at.run(kernel(10 * k_us));
    const auto late_lane = at.stream();
    at.streams().wait(late_lane, produced);
    const auto late = at.run(late_lane, copy_out(100'000));
    const auto early = at.run(copy_out(1'200'000));
    EXPECT_EQ(at.end_of(early), 12 * k_us);
    EXPECT_EQ(at.end_of(late), 13 * k_us);
}

TEST(sim_engines, engines_run_side_by_side_and_kernels_one_after_the_other) {
    sim_times at(plain_machine());
    const auto first = at.run(kernel(10 * k_us));
    const auto second = at.run(kernel(10 * k_us));
    const auto gathered = at.run(collective(15 * k_us));
    const auto out = at.run(copy_out(1'100'000));
    EXPECT_EQ(at.end_of(first), 10 * k_us);
    EXPECT_EQ(at.end_of(out), 11 * k_us);
    EXPECT_EQ(at.end_of(gathered), 15 * k_us);
    EXPECT_EQ(at.end_of(second), 20 * k_us);
    const sim_engines &engines = at.streams().engines();
    EXPECT_EQ(engines.busy_ps(sim_engine::compute), 20 * k_us);
    EXPECT_EQ(engines.busy_ps(sim_engine::collective), 15 * k_us);
    EXPECT_EQ(engines.busy_ps(sim_engine::d2h), 11 * k_us);
    EXPECT_EQ(engines.busy_ps(sim_engine::h2d), 0U);
}

TEST(sim_engines, a_piece_that_is_running_counts_as_busy_so_far) {
    sim_times at(plain_machine());
    at.run(kernel(10 * k_us));
    at.streams().run_until(4 * k_us);
    EXPECT_EQ(at.streams().engines().busy_ps(sim_engine::compute), 4 * k_us);
}

// --------------------------------------------------------------------------------------------- both directions --

TEST(sim_engines, a_half_duplex_link_halves_both_directions) {
    sim_machine machine = plain_machine();
    machine.half_duplex = true;
    sim_times at(machine);
    const auto out = at.run(copy_out(1'000'000));
    const auto in = at.run(copy_in(1'000'000));
    EXPECT_EQ(at.end_of(in), 10 * k_us);                        // at 100 GB/s
    EXPECT_EQ(at.end_of(out), (10 + 5) * k_us);                 // half at 50 GB/s, then half at 100
    EXPECT_EQ(at.end_of(at.run(copy_in(200'000))), 16 * k_us);  // alone again
}

TEST(sim_engines, both_directions_at_once_have_rates_of_their_own) {
    sim_machine machine;  // as measured on one PCIe 4 link
    machine.d2h = {25e9, 24e9, 0, {}};
    machine.h2d = {25e9, 12e9, 0, {}};
    sim_times at(machine);
    const auto out = at.run(copy_out(24'000'000));
    const auto in = at.run(copy_in(24'500'000));
    EXPECT_EQ(at.end_of(out), k_ms);
    EXPECT_EQ(at.end_of(in), k_ms + k_ms / 2);  // 12 MB so far, the other 12.5 MB at the full rate
}

TEST(sim_engines, a_copy_in_its_latency_takes_nothing_of_the_other_directions_rate) {
    sim_machine machine = plain_machine();
    machine.half_duplex = true;
    machine.h2d.latency_ps = 10 * k_us;
    sim_times at(machine);
    const auto out = at.run(copy_out(1'000'000));
    const auto in = at.run(copy_in(1'000'000));
    EXPECT_EQ(at.end_of(out), 10 * k_us);
    EXPECT_EQ(at.end_of(in), 15 * k_us);
}

// ------------------------------------------------------------------------------------------- what is shared --

TEST(sim_engines, two_gpus_share_their_hosts_memory) {
    sim_machine machine;
    machine.d2h.bytes_per_second = 193e9;
    machine.h2d.bytes_per_second = 201e9;
    machine.host_dram_bytes_per_second = 381e9;
    EXPECT_EQ(
        [&] {
            sim_times at(machine);
            return at.end_of(at.run(copy_out(193'000'000)));
        }(),
        k_ms);
    machine.gpus_per_host_memory = 2;
    sim_times at(machine);
    EXPECT_EQ(at.end_of(at.run(copy_out(190'500'000))), k_ms);  // 381 / 2
}

TEST(sim_engines, both_directions_share_host_memory_by_their_rates) {
    sim_machine machine = plain_machine();
    machine.host_dram_bytes_per_second = 150e9;  // of 300: half of each rate
    sim_times at(machine);
    const auto out = at.run(copy_out(1'000'000));
    const auto in = at.run(copy_in(1'000'000));
    EXPECT_EQ(at.end_of(in), 10 * k_us);
    EXPECT_EQ(at.end_of(out), (10 + 5) * k_us);  // alone it has all of its rate
}

TEST(sim_engines, a_copy_slows_a_memory_bound_kernel_and_no_compute_bound_one) {
    sim_machine machine = plain_machine();
    machine.hbm_bytes_per_second = 1000e9;  // a copy out takes a tenth of it
    const auto kernel_beside_copy = [&](double hbm_fraction) {
        sim_times at(machine);
        at.run(copy_out(5'000'000));  // 50 us
        return at.end_of(at.run(kernel(100 * k_us, hbm_fraction)));
    };
    EXPECT_EQ(kernel_beside_copy(0), 100 * k_us);
    EXPECT_EQ(kernel_beside_copy(0.9), 100 * k_us);
    EXPECT_EQ(kernel_beside_copy(1), 105 * k_us);      // 45 us' worth in the first 50
    EXPECT_EQ(kernel_beside_copy(0.96), 103'125'000);  // 0.9 / 0.96 = 0.9375 of its speed
}

TEST(sim_engines, a_copy_to_the_host_slows_collectives) {
    sim_machine machine = plain_machine();
    machine.collective_loss = 0.1;
    sim_times out(machine);
    out.run(copy_out(5'000'000));  // 50 us
    EXPECT_EQ(out.end_of(out.run(collective(100 * k_us))), 105 * k_us);
    sim_times in(machine);
    in.run(copy_in(5'000'000));
    EXPECT_EQ(in.end_of(in.run(collective(100 * k_us))), 100 * k_us);
}

// ------------------------------------------------------------------------------------------------ no drift --

TEST(sim_engines, a_hundred_thousand_chunks_take_as_long_as_their_sum) {
    sim_machine machine;
    machine.d2h = {193e9, 0, 3'000'000, {}};
    sim_times at(machine);
    const auto lane = at.stream();
    constexpr uint64_t k_chunks = 100'000;
    constexpr uint64_t k_chunk_bytes = 1'234'567;
    sim_streams::index last = 0;
    for (uint64_t i = 0; i < k_chunks; ++i) {
        last = at.run(lane, copy_out(k_chunk_bytes));
    }
    const double expected_ps = k_chunks * (3e6 + k_chunk_bytes / 193e9 * 1e12);  // 0.94 s
    EXPECT_NEAR(static_cast<double>(at.end_of(last)), expected_ps, 2);
}

// A kernel whose speed changes twice with each of many copies that run beside it.
TEST(sim_engines, many_changes_of_speed_add_up_exactly) {
    sim_machine machine;
    machine.d2h = {193e9, 0, 3'000'000, {}};
    machine.hbm_bytes_per_second = 4e12;
    sim_times at(machine);
    const auto work = at.run(kernel(3'000 * k_ms, 1));
    const auto lane = at.stream();
    constexpr uint64_t k_copies = 20'000;
    constexpr uint64_t k_copy_bytes = 16'777'216;  // 87 us each, 1.8 s in all
    for (uint64_t i = 0; i < k_copies; ++i) {
        at.run(lane, copy_out(k_copy_bytes));
    }
    const double lost_part = 193e9 / 4e12;
    const double expected_ps = 3e12 + k_copies * (k_copy_bytes / 193e9 * 1e12) * lost_part;
    EXPECT_NEAR(static_cast<double>(at.end_of(work)), expected_ps, 1000);
}

// Looking often at the time changes nothing: no piece is advanced by what each look rounds.
TEST(sim_engines, looking_at_the_time_changes_no_time) {
    sim_machine machine;
    machine.d2h = {193e9, 0, 3'000'000, {}};
    machine.hbm_bytes_per_second = 4e12;
    sim_time_ps ends[2] = {0, 0};
    for (const bool look : {false, true}) {
        sim_times at(machine);
        const auto work = at.run(kernel(5 * k_ms, 1));
        at.run(copy_out(123'456'789));
        for (sim_time_ps time = 0; look && time < 5 * k_ms; time += 777'777) {
            at.streams().run_until(time);
        }
        ends[look ? 1 : 0] = at.end_of(work);
    }
    EXPECT_EQ(ends[0], ends[1]);
}

// ------------------------------------------------------------------------------------------- what is refused --

TEST(sim_machine_check, numbers_that_make_no_sense_are_named) {
    EXPECT_TRUE(check_machine(plain_machine()).ok());
    const auto refused = [](auto &&spoil) {
        sim_machine machine = plain_machine();
        spoil(machine);
        const status checked = check_machine(machine);
        EXPECT_EQ(checked.code(), code::invalid_argument);
        return checked.text();
    };
    EXPECT_EQ(refused([](sim_machine &m) { m.d2h.bytes_per_second = -1; }),
              "sim device: d2h.bytes_per_second is -1, must be at least 0");
    EXPECT_EQ(refused([](sim_machine &m) { m.collective_loss = 1; }),
              "sim device: collective_loss is 1, must be at least 0 and below 1");
    EXPECT_EQ(refused([](sim_machine &m) { m.gpus_per_host_memory = 0; }),
              "sim device: gpus_per_host_memory is 0, must be at least 1");
    EXPECT_EQ(refused([](sim_machine &m) {
                  m.h2d.curve = {{1000, 0}};
              }),
              "sim device: h2d.curve has fraction 0 at 1000 bytes, must be above 0 and at most 1");
    EXPECT_EQ(refused([](sim_machine &m) {
                  m.h2d.curve = {{1000, 1}, {1000, 1}};
              }),
              "sim device: h2d.curve has 1000 bytes after 1000: sizes must be above 0 and rise");
}

}  // namespace
}  // namespace ebb
