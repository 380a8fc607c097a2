// Speed: faults that were reported against systems that move activations, as far as they can be counted instead of
// timed. Each test is named after its entry.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "fault_session.hpp"

namespace ebb::test {
namespace {

class speed : public on_every_machine {};

// ------------------------------------------------------------------------------------------------------- S1 --

// Two steps are enough to warm up, also when the device had done nothing of them by their end: later ones ask the
// driver for nothing, sampled or not. Nobody calls ebb_progress.
TEST_P(speed, S1_no_driver_allocation_after_warm_up) {
    for (const bool verify : {false, true}) {
        rig::options o;
        o.host.capacity_bytes = 64ULL << 20U;
        o.core.min_offload_bytes = 1;
        o.core.device_budget_bytes = 12 * k_unit_bytes;
        o.core.sample_every = 4;
        o.core.verify = verify;
        stream_gate slow;
        rig r(o);
        constexpr int k_layers = 8;
        const auto step = [&] {
            r.step();
            r.launch([&slow] { slow.pass(); });
            for (int l = 0; l < k_layers; ++l) {
                r.forward("layer." + std::to_string(l), "input", k_unit_bytes);
                r.forward("layer." + std::to_string(l), "gate", 2 * k_unit_bytes);
            }
            for (int l = k_layers; l-- > 0;) {
                r.backward("layer." + std::to_string(l), "gate");
                r.backward("layer." + std::to_string(l), "input");
            }
            slow.let();
            r.synchronize();
        };
        step();
        step();
        r.device().clear();
        for (int i = 0; i < 12; ++i) {
            step();
        }
        for (const call_kind kind : {call_kind::alloc_device, call_kind::free_device, call_kind::map_host,
                                     call_kind::unmap_host, call_kind::create_event, call_kind::create_stream}) {
            EXPECT_EQ(r.device().entries(kind).size(), 0U) << call_kind_name(kind);
        }
        EXPECT_GT(r.device().entries(call_kind::copy).size(), 0U);
        r.step(EBB_PHASE_EVALUATE);
        EXPECT_EQ(r.stats().sampled_steps, 4U);
    }
}

// ------------------------------------------------------------------------------------------------------- S4 --

// A bulk reload of 64 chunks, of which at most one may go: a small copy that the caller makes meanwhile on a stream of
// his own, on the same engine, is through.
TEST_P(speed, S4_a_bulk_copy_holds_a_small_one_up_for_a_chunk_at_most) {
    constexpr uint64_t k_chunk_bytes = 16 * 1024;
    constexpr uint64_t k_bulk_bytes = 64 * k_chunk_bytes;
    runtime_options core = copies_always(1, k_bulk_bytes);
    core.chunk_bytes = k_chunk_bytes;
    session s(core);
    const ebb_stream compute = s.stream();
    const ebb_stream consumer = s.stream();
    const ebb_stream other = s.stream();
    const session::saved bulk = s.save(compute, "bulk", k_bulk_bytes);
    s.drain();
    s.hold(copy_direction::h2d);
    s.device().clear();
    const ebb_reload_info info = s.reload(bulk, consumer);
    std::atomic<bool> bulk_is_through{false};
    s.launch(consumer, [&] { bulk_is_through = true; });
    s.check(consumer, info.data, bulk);
    ASSERT_TRUE(s.fault().wait_until_held(copy_direction::h2d).ok());
    ASSERT_TRUE(s.fault().let_pass(copy_direction::h2d, 1).ok());

    constexpr uint64_t k_small_bytes = 4096;
    std::vector<std::byte> small(k_small_bytes, std::byte{0x5A});
    std::byte *target = s.alloc(k_small_bytes);
    ASSERT_TRUE(s.machine().copy_in(stream_id{other}, target, small.data(), k_small_bytes).ok());
    s.sync(other);
    EXPECT_EQ(std::memcmp(target, small.data(), k_small_bytes), 0);
    EXPECT_FALSE(bulk_is_through.load());

    const std::vector<trace_entry> copies = s.device().entries(call_kind::copy);
    EXPECT_EQ(copies.size(), k_bulk_bytes / k_chunk_bytes);
    for (const trace_entry &copy : copies) {
        EXPECT_LE(copy.size_bytes, k_chunk_bytes);
    }
    s.let_go(copy_direction::h2d);
    s.give_back(info, consumer);
    s.release(bulk);
    s.drain();
    EXPECT_TRUE(bulk_is_through.load());
    s.free(target);
}

// With two lanes, a small reload of ours is not queued behind a bulk one either.
TEST_P(speed, S4_a_small_reload_goes_beside_a_bulk_one) {
    constexpr uint64_t k_bulk_bytes = 16 * k_unit_bytes;
    runtime_options core = copies_always(2, k_bulk_bytes);
    core.chunk_bytes = k_unit_bytes;
    core.lanes = 2;
    session s(core);
    const ebb_stream compute = s.stream();
    const ebb_stream consumer = s.stream();
    const ebb_stream other = s.stream();
    const session::saved bulk = s.save(compute, "bulk", k_bulk_bytes);
    const session::saved small = s.save(compute, "small", 4096);
    s.drain();
    s.hold(copy_direction::h2d);
    s.device().clear();
    s.read_back(bulk, consumer);
    s.read_back(small, other);
    const stream_order order = s.order();
    const std::vector<size_t> in = order.copies(copy_direction::h2d);
    ASSERT_EQ(in.size(), k_bulk_bytes / k_unit_bytes + 1);
    for (size_t chunk = 0; chunk + 1 < in.size(); ++chunk) {
        EXPECT_FALSE(order.behind(in.back(), in[chunk]));
    }
    s.let_go(copy_direction::h2d);
    s.drain();
    EXPECT_EQ(s.wrong(), 0);
}

// ------------------------------------------------------------------------------------------------------- S5 --

// A link that moves nothing, and a producer that does not care: what is in flight stays within the cap, because the
// home stream waits before the next kernel, and not the host.
TEST_P(speed, S5_bytes_in_flight_are_capped) {
    constexpr uint64_t k_cap_bytes = 4 * k_unit_bytes;
    constexpr size_t k_in_flight = k_cap_bytes / k_unit_bytes;
    constexpr size_t k_count = 20;
    runtime_options core = sources_stay();
    core.source_bytes = k_cap_bytes;
    session s(core);
    const ebb_stream compute = s.stream();
    s.hold(copy_direction::d2h);
    std::atomic<size_t> produced{0};
    std::vector<session::saved> all;
    for (size_t i = 0; i < k_count; ++i) {
        s.launch(compute, [&produced] { ++produced; });
        all.push_back(s.save(compute, "x"));
        EXPECT_LE(s.stats().source_bytes, k_cap_bytes);
    }
    EXPECT_EQ(s.stats().source_peak_bytes, k_cap_bytes);
    EXPECT_LE(produced.load(), k_in_flight + 1) << "beyond the cap there is the one being produced";
    const stream_order order = s.order();
    const std::vector<size_t> out = order.copies(copy_direction::d2h);
    ASSERT_EQ(out.size(), k_count);
    const uint32_t home = order[order.records().at(0)].stream;
    std::vector<size_t> marks;  // of the kernels
    for (const size_t record : order.records()) {
        if (order[record].stream == home) {
            marks.push_back(record);
        }
    }
    ASSERT_EQ(marks.size(), k_count);
    for (size_t i = k_in_flight + 1; i < k_count; ++i) {
        EXPECT_TRUE(order.behind(marks[i], out[i - k_in_flight - 1])) << "kernel " << i;
    }
    s.let_go(copy_direction::d2h);
    for (const session::saved &x : all) {
        s.read_back(x, compute);
        s.release(x);
    }
    s.drain();
    EXPECT_EQ(produced.load(), k_count);
    EXPECT_EQ(s.wrong(), 0);
}

// ------------------------------------------------------------------------------------------------------- S6 --

// The host device, which says that its memory is the host's.
class integrated_device : public device_decorator {
public:
    explicit integrated_device(std::unique_ptr<host_device> host)
        : device_decorator(*host), info_(host->info()), host_(std::move(host)) {
        info_.integrated = true;
    }
    [[nodiscard]] const device_info &info() const noexcept override { return info_; }

private:
    device_info info_;
    std::unique_ptr<host_device> host_;
};

TEST_P(speed, S6_nothing_is_copied_where_device_memory_is_host_memory) {
    auto host = std::make_unique<host_device>(host_device_options{});
    host_device *inner = host.get();
    runtime_options core;
    core.min_offload_bytes = 1;
    core.device_budget_bytes = 4 * k_unit_bytes;
    result<ebb_runtime *> made =
        capi::make_runtime(std::make_unique<integrated_device>(std::move(host)), inner, core, logger(), nullptr);
    ASSERT_TRUE(made.ok()) << made.why().text();
    ebb_runtime *runtime = made.value();
    std::vector<std::byte> bytes(k_unit_bytes);
    const ebb_stream thread = EBB_STREAM_CALLING_THREAD;
    for (int step = 0; step < 3; ++step) {
        EBB_ASSERT_OK(ebb_step(runtime, EBB_PHASE_TRAIN));
        std::vector<ebb_activation> live;
        for (int i = 0; i < 8; ++i) {
            ebb_offload_args args{};
            args.struct_size = sizeof(args);
            args.name = "x";
            args.data = bytes.data();
            args.size_bytes = bytes.size();
            args.producers = &thread;
            args.producer_count = 1;
            args.placement = i % 2 == 0 ? EBB_PLACE_BY_POLICY : EBB_PLACE_OFFLOAD;
            ebb_offload_info info{};
            info.struct_size = sizeof(info);
            EBB_ASSERT_OK(ebb_offload(runtime, &args, &info));
            EXPECT_EQ(info.placement, EBB_PLACE_KEEP);
            EXPECT_EQ(info.reason, EBB_REASON_INTEGRATED);
            live.push_back(info.activation);
        }
        for (const ebb_activation activation : live) {
            ebb_reload_info info{};
            info.struct_size = sizeof(info);
            EBB_ASSERT_OK(ebb_reload(runtime, activation, thread, &info));
            EXPECT_EQ(info.data, bytes.data());
            EBB_ASSERT_OK(ebb_return(runtime, info.claim, thread));
            EBB_ASSERT_OK(ebb_release(runtime, activation));
        }
    }
    ebb_statistics stats{};
    stats.struct_size = sizeof(stats);
    EBB_ASSERT_OK(ebb_stats(runtime, &stats));
    EXPECT_EQ(stats.kept_count, 24U);
    EXPECT_EQ(stats.d2h_bytes + stats.h2d_bytes, 0U);
    EXPECT_EQ(stats.pinned_peak_bytes, 0U);
    EBB_EXPECT_OK(ebb_runtime_close(runtime, EBB_CLOSE_DEFAULT));
}

EBB_ON_EVERY_MACHINE(speed);

}  // namespace
}  // namespace ebb::test
