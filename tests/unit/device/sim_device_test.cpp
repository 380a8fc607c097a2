// The simulated device as a device: the host's clock, events and gates, memory that is only accounted, and runs that
// repeat themselves.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "device/sim/sim_device.hpp"

namespace ebb {
namespace {

constexpr sim_time_ps k_us = 1'000'000;
constexpr uint64_t k_gib = 1ULL << 30U;

sim_machine small_machine() {
    sim_machine machine;
    machine.device_bytes = k_gib;
    machine.host_bytes = k_gib;
    machine.d2h.bytes_per_second = 100e9;
    machine.h2d.bytes_per_second = 200e9;
    machine.host_call_ps = 0;
    return machine;
}

sim_kernel kernel_of(sim_time_ps duration_ps) {
    sim_kernel kernel;
    kernel.duration_ps = duration_ps;
    return kernel;
}

class sim_rig {
public:
    explicit sim_rig(const sim_machine &machine) : device_(machine) {}

    sim_device &device() { return device_; }
    stream_id stream() {
        const result<stream_id> made = device_.create_stream(stream_role::compute);
        EXPECT_TRUE(made.ok());
        return made.value();
    }
    event_id event() {
        const result<event_id> made = device_.create_event(event_kind::timed);
        EXPECT_TRUE(made.ok());
        return made.value();
    }
    event_id mark(stream_id on) {
        const event_id made = event();
        EXPECT_TRUE(device_.record_event(made, on).ok());
        return made;
    }
    void launch(stream_id on, sim_time_ps duration_ps) { EXPECT_TRUE(device_.launch(on, kernel_of(duration_ps)).ok()); }
    uint64_t between_ns(event_id start, event_id end) {
        EXPECT_TRUE(device_.synchronize_event(end).ok());
        const result<uint64_t> passed = device_.elapsed_ns(start, end);
        EXPECT_TRUE(passed.ok()) << passed.why().text();
        return passed.ok() ? passed.value() : 0;
    }

private:
    sim_device device_;
};

// --------------------------------------------------------------------------------------------- the host's clock --

TEST(sim_device, a_host_that_runs_ahead_takes_its_own_time_only) {
    sim_machine machine = small_machine();
    machine.host_call_ps = 2 * k_us;
    sim_rig at(machine);
    const stream_id stream = at.stream();
    for (int i = 0; i < 3; ++i) {
        at.launch(stream, 10 * k_us);
    }
    EXPECT_EQ(at.device().host_time_ps(), 6 * k_us);
    at.device().synchronize();
    EXPECT_EQ(at.device().host_time_ps(), (2 + 30) * k_us);
}

TEST(sim_device, a_host_that_does_not_run_ahead_waits_after_each_call) {
    sim_machine machine = small_machine();
    machine.host_call_ps = 2 * k_us;
    machine.host_runs_ahead = false;
    sim_rig at(machine);
    const stream_id stream = at.stream();
    for (int i = 1; i <= 3; ++i) {
        at.launch(stream, 10 * k_us);
        EXPECT_EQ(at.device().host_time_ps(), static_cast<sim_time_ps>(i) * 12 * k_us);
    }
}

TEST(sim_device, work_begins_when_the_host_enqueues_it) {
    sim_machine machine = small_machine();
    machine.host_call_ps = 3 * k_us;
    sim_rig at(machine);
    const stream_id stream = at.stream();
    at.launch(stream, k_us);               // at 3, until 4
    at.launch(stream, k_us);               // at 6, until 7
    const event_id end = at.mark(stream);  // at 9
    EXPECT_TRUE(at.device().synchronize_event(end).ok());
    EXPECT_EQ(at.device().busy_ps(sim_engine::compute), 2 * k_us);
    EXPECT_EQ(at.device().host_time_ps(), 12 * k_us);
}

TEST(sim_device, a_host_whose_calls_take_no_time_gets_there_by_asking) {
    sim_rig at(small_machine());
    const stream_id stream = at.stream();
    at.launch(stream, 10 * k_us);
    const event_id end = at.mark(stream);
    int asked = 0;
    for (result<bool> done = false; !done.value(); ++asked) {
        done = at.device().event_done(end);
        ASSERT_TRUE(done.ok());
        ASSERT_LT(asked, 20'000);
    }
    EXPECT_EQ(asked, 10'000);  // a nanosecond each
}

// --------------------------------------------------------------------------------------------- events and gates --

TEST(sim_device, a_wait_is_for_the_record_that_was_the_latest_when_it_was_called) {
    sim_rig at(small_machine());
    const stream_id producer = at.stream();
    const stream_id consumer = at.stream();
    const event_id start = at.mark(consumer);
    const event_id event = at.event();
    at.launch(producer, 10 * k_us);
    EXPECT_TRUE(at.device().record_event(event, producer).ok());
    EXPECT_TRUE(at.device().wait_event(consumer, event).ok());
    at.launch(producer, 100 * k_us);
    EXPECT_TRUE(at.device().record_event(event, producer).ok());
    const event_id waited = at.mark(consumer);
    EXPECT_EQ(at.between_ns(start, waited), 10'000U);
    EXPECT_EQ(at.between_ns(start, event), 110'000U);
}

TEST(sim_device, a_stream_that_waits_leaves_its_engine_to_others) {
    sim_rig at(small_machine());
    const stream_id slow = at.stream();
    const stream_id waits = at.stream();
    const stream_id other = at.stream();
    const event_id start = at.mark(slow);
    EXPECT_TRUE(at.device().launch(slow, {sim_engine::collective, 50 * k_us, 0}).ok());
    const event_id gathered = at.mark(slow);
    EXPECT_TRUE(at.device().wait_event(waits, gathered).ok());
    at.launch(waits, 10 * k_us);
    at.launch(other, 20 * k_us);
    EXPECT_EQ(at.between_ns(start, at.mark(other)), 20'000U);
    EXPECT_EQ(at.between_ns(start, at.mark(waits)), 60'000U);
}

TEST(sim_device, a_gate_holds_its_stream_and_no_other) {
    sim_rig at(small_machine());
    const stream_id held = at.stream();
    const stream_id other = at.stream();
    const event_id start = at.mark(other);
    at.launch(held, 10 * k_us);
    const result<sim_device::gate> gate = at.device().stand(held);
    ASSERT_TRUE(gate.ok());
    at.launch(held, 10 * k_us);
    const event_id behind = at.mark(held);
    at.launch(other, 5 * k_us);
    at.device().synchronize();
    EXPECT_EQ(at.between_ns(start, at.mark(other)), 15'000U);  // behind the kernel before the gate
    EXPECT_FALSE(at.device().event_done(behind).value());
    const status never = at.device().synchronize_event(behind);
    EXPECT_EQ(never.code(), code::device_error);
    EXPECT_NE(never.text().find("never passed"), std::string::npos);
    at.device().open_gate(gate.value());
    EXPECT_EQ(at.between_ns(start, behind), 25'001U);  // 1 ns was asked for
}

TEST(sim_device, a_gate_that_is_opened_early_holds_nothing) {
    sim_rig at(small_machine());
    const stream_id stream = at.stream();
    const event_id start = at.mark(stream);
    at.launch(stream, 10 * k_us);
    const result<sim_device::gate> gate = at.device().stand(stream);
    ASSERT_TRUE(gate.ok());
    at.device().open_gate(gate.value());
    EXPECT_EQ(at.between_ns(start, at.mark(stream)), 10'000U);
}

TEST(sim_device, a_stream_ends_behind_what_is_on_it) {
    sim_rig at(small_machine());
    const stream_id ending = at.stream();
    const stream_id other = at.stream();
    const event_id start = at.mark(other);
    at.launch(ending, 10 * k_us);
    const event_id behind = at.mark(ending);
    EXPECT_TRUE(at.device().destroy_stream(ending).ok());
    EXPECT_EQ(at.device().launch(ending, kernel_of(k_us)).code(), code::invalid_argument);
    const stream_id fresh = at.stream();  // not the one that still runs
    at.launch(fresh, k_us);
    EXPECT_EQ(at.between_ns(start, behind), 10'000U);
    EXPECT_EQ(at.between_ns(start, at.mark(fresh)), 11'000U);
}

TEST(sim_device, an_event_that_ends_is_still_waited_for) {
    sim_rig at(small_machine());
    const stream_id producer = at.stream();
    const stream_id consumer = at.stream();
    const event_id start = at.mark(consumer);
    at.launch(producer, 10 * k_us);
    const event_id event = at.mark(producer);
    EXPECT_TRUE(at.device().wait_event(consumer, event).ok());
    EXPECT_TRUE(at.device().destroy_event(event).ok());
    EXPECT_EQ(at.between_ns(start, at.mark(consumer)), 10'000U);
}

// ------------------------------------------------------------------------------------------------------- copies --

TEST(sim_device, copies_go_to_the_engine_of_their_direction) {
    sim_machine machine = small_machine();
    machine.hbm_bytes_per_second = 1000e9;
    sim_rig at(machine);
    std::byte *there = reinterpret_cast<std::byte *>(1ULL << 40U);
    const auto time_of = [&](copy_direction direction) {
        const stream_id stream = at.stream();
        at.device().synchronize();
        const event_id start = at.mark(stream);
        EXPECT_TRUE(at.device().copy(stream, direction, there, there + k_gib, 1'000'000).ok());
        return at.between_ns(start, at.mark(stream));
    };
    EXPECT_EQ(time_of(copy_direction::d2h), 10'000U);
    EXPECT_EQ(time_of(copy_direction::h2d), 5'000U);
    EXPECT_EQ(time_of(copy_direction::d2d), 2'000U);  // read and written
    EXPECT_EQ(at.device().busy_ps(sim_engine::d2h), 10 * k_us);
    EXPECT_EQ(at.device().busy_ps(sim_engine::h2d), 5 * k_us);
    EXPECT_EQ(at.device().busy_ps(sim_engine::compute), 2 * k_us);
}

TEST(sim_device, a_checksum_takes_the_time_of_reading) {
    sim_machine machine = small_machine();
    machine.hbm_bytes_per_second = 1000e9;
    sim_rig at(machine);
    const stream_id stream = at.stream();
    const event_id start = at.mark(stream);
    uint64_t sum = 0;
    EXPECT_TRUE(at.device().checksum(stream, reinterpret_cast<void *>(1ULL << 40U), 1'000'000, &sum).ok());
    EXPECT_EQ(at.between_ns(start, at.mark(stream)), 1'000U);
}

// ------------------------------------------------------------------------------------------------------- memory --

TEST(sim_device, device_memory_is_accounted_and_not_backed) {
    sim_machine machine = small_machine();
    machine.device_bytes = 165 * k_gib;
    sim_device device(machine);
    std::vector<void *> blocks;
    for (int i = 0; i < 5; ++i) {
        const result<void *> block = device.alloc_device(33 * k_gib);
        ASSERT_TRUE(block.ok()) << block.why().text();
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block.value()) % 512, 0U);
        blocks.push_back(block.value());
    }
    EXPECT_EQ(device.memory().capacity_bytes, 165 * k_gib);
    EXPECT_EQ(device.memory().free_bytes, 0U);
    const result<void *> beyond = device.alloc_device(1);
    EXPECT_EQ(beyond.why().code(), code::out_of_device_memory);
    EXPECT_EQ(
        beyond.why().text(),
        "device memory of the sim device: 1 bytes wanted, 177167400960 bytes held, the cap is 177167400960 bytes");
    EXPECT_TRUE(device.free_device(blocks[2], 33 * k_gib).ok());
    EXPECT_TRUE(device.alloc_device(20 * k_gib).ok());
    EXPECT_EQ(device.memory().free_bytes, 13 * k_gib);
}

TEST(sim_device, pinned_memory_is_accounted_and_refused_beyond_the_machines) {
    sim_machine machine = small_machine();
    machine.host_bytes = 480 * k_gib;
    sim_device device(machine);
    const result<void *> slab = device.map_host(479 * k_gib);
    ASSERT_TRUE(slab.ok()) << slab.why().text();
    EXPECT_EQ(device.host_room_bytes(), k_gib);
    EXPECT_EQ(device.map_host(2 * k_gib).why().code(), code::out_of_host_memory);
    EXPECT_TRUE(device.unmap_host(slab.value(), 479 * k_gib).ok());
    EXPECT_EQ(device.host_room_bytes(), 480 * k_gib);
}

// -------------------------------------------------------------------------------------------------- repeatable --

// Two streams, copies both ways and kernels beside them, the third call of each round changed by `extra_bytes`.
uint64_t hash_of_a_run(uint64_t extra_bytes) {
    sim_machine machine = small_machine();
    machine.host_call_ps = k_us;
    machine.hbm_bytes_per_second = 1000e9;
    sim_rig at(machine);
    const stream_id compute = at.stream();
    const stream_id lane = at.stream();
    std::byte *there = reinterpret_cast<std::byte *>(1ULL << 40U);
    for (int round = 0; round < 50; ++round) {
        at.launch(compute, 10 * k_us);
        const event_id produced = at.mark(compute);
        EXPECT_TRUE(at.device().wait_event(lane, produced).ok());
        const uint64_t size_bytes = 900'000 + (round == 25 ? extra_bytes : 0);
        EXPECT_TRUE(at.device().copy(lane, copy_direction::d2h, there + k_gib, there, size_bytes).ok());
        EXPECT_TRUE(at.device().copy(lane, copy_direction::h2d, there, there + k_gib, 400'000).ok());
    }
    at.device().synchronize();
    return at.device().log_hash();
}

TEST(sim_device, the_same_calls_have_the_same_log_and_a_changed_one_another) {
    const uint64_t hash = hash_of_a_run(0);
    EXPECT_EQ(hash_of_a_run(0), hash);
    EXPECT_NE(hash_of_a_run(8), hash);
}

TEST(sim_device, operations_are_counted) {
    sim_rig at(small_machine());
    const stream_id stream = at.stream();
    at.launch(stream, k_us);
    const event_id event = at.mark(stream);
    EXPECT_TRUE(at.device().wait_event(stream, event).ok());
    EXPECT_EQ(at.device().operation_count(), 3U);
}

}  // namespace
}  // namespace ebb
