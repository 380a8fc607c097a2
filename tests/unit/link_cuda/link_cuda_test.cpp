// The benchmark of the link as it runs on a GPU, on the double of CUDA: its gate, its work and what it counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "cuda_double/cuda_double.hpp"
#include "link/call_cost.hpp"
#include "link/counted_cuda_api.hpp"
#include "link/cuda_link_kernels.hpp"
#include "link/measure_cell.hpp"
#include "link/pattern.hpp"
#include "link/traffic.hpp"

namespace ebb::link {
namespace {

// The program's side of CUDA, as the benchmark calls it.
link_cuda double_link_cuda() {
    const test::cuda_user &user = test::cuda_double::user();
    link_cuda made{};
    made.host_alloc = user.host_alloc;
    made.free_host = user.free_host;
    made.stream_create_with_flags = user.stream_create_with_flags;
    made.stream_destroy = user.stream_destroy;
    made.stream_synchronize = user.stream_synchronize;
    made.stream_wait_event = user.stream_wait_event;
    made.event_create_with_flags = user.event_create_with_flags;
    made.event_destroy = user.event_destroy;
    made.event_record = user.event_record;
    made.launch_fill = user.launch_fill;
    made.launch_compare = user.launch_compare;
    made.launch_gate = [](cudaStream_t stream, const uint32_t *open, uint32_t *) {
        return test::cuda_double::user().launch_wait(stream, open);
    };
    made.launch_load = [](cudaStream_t stream, const uint32_t *ends) {
        return test::cuda_double::user().launch_wait(stream, ends);
    };
    return made;
}

class link_on_cuda : public ::testing::Test {
protected:
    link_device open() {
        result<std::unique_ptr<cuda_device>> dev =
            cuda_device::make(count_cuda_calls(cuda_.api()), 0, cuda_device_options{});
        EXPECT_TRUE(dev.ok()) << dev.why().text();
        link_device made;
        made.kernels = std::move(cuda_link_kernels::make(calls_, *dev.value(), {})).value();
        made.dev = std::move(dev).value();
        made.cuda_calls = &counted_cuda_calls;
        return made;
    }
    std::unique_ptr<link_rig> rig_for(const link_cell &cell) {
        result<std::unique_ptr<link_rig>> rig = link_rig::make(open(), {cell});
        EXPECT_TRUE(rig.ok()) << rig.why().text();
        return std::move(rig).value();
    }
    void TearDown() override {
        cuda_.finish();
        cuda_.check_all_is_given_back();
        for (const test::misuse &each : cuda_.take_misuses()) {
            ADD_FAILURE() << each.text;
        }
    }

    test::cuda_double cuda_;
    const link_cuda calls_ = double_link_cuda();
};

TEST_F(link_on_cuda, the_pattern_is_the_doubles) {
    EXPECT_EQ(pattern_word(7, 3), test::filled_word(7, 3));
}

TEST_F(link_on_cuda, cells_are_measured) {
    for (const link_cell &cell :
         {link_cell{way::d2h, false, load::none, 4096}, link_cell{way::h2d, true, load::compute, 65536}}) {
        const std::unique_ptr<link_rig> rig = rig_for(cell);
        const result<cell_times> times = measure_cell(*rig, cell, 2);
        ASSERT_TRUE(times.ok()) << cell.name() << ": " << times.why().text();
        EXPECT_EQ(times.value().ebb.ns.size(), 2U);
    }
}

// Everything is enqueued while the gate is shut: had one call waited for the device, this would never end.
TEST_F(link_on_cuda, nothing_passes_the_gate_before_it_opens) {
    for (const way direction : {way::d2h, way::h2d}) {
        const link_cell cell{direction, false, load::none, 4096};
        const std::unique_ptr<link_rig> rig = rig_for(cell);
        const uint64_t count = copies_of(cell);
        rig->slots().reset(rig->device_memory() + count * slot_pool::slot_bytes(4096), count,
                           slot_pool::slot_bytes(4096));
        const std::unique_ptr<traffic> copies =
            std::move(make_ebb_traffic(*rig, direction, {4096, count}, {rig->device_memory(), nullptr})).value();
        ASSERT_TRUE(copies->prepare(1).ok());
        ASSERT_TRUE(rig->kernels().close_gate().ok());
        ASSERT_TRUE(rig->kernels().hold(copies->held_stream()).ok());
        for (uint64_t i = 0; i < count; ++i) {
            ASSERT_TRUE(copies->enqueue(i).ok());
        }
        const uint64_t end = rig->mark(copies->last_stream()).value();
        EXPECT_EQ(rig->ns_between(end, end).why().code(), code::wrong_state)
            << way_name(direction) << ": it is not done";
        ASSERT_TRUE(rig->kernels().open_gate().ok());
        ASSERT_TRUE(rig->finish(copies->last_stream()).ok());
        EXPECT_TRUE(copies->verify().ok());
    }
}

TEST_F(link_on_cuda, nccl_is_refused_where_there_is_none) {
    const link_cell cell{way::d2h, false, load::nccl, 4096};
    const std::unique_ptr<link_rig> rig = rig_for(cell);
    const result<cell_times> times = measure_cell(*rig, cell, 1);
    EXPECT_EQ(times.why().code(), code::unsupported);
    EXPECT_THAT(times.why().text(), ::testing::HasSubstr("NCCL"));
}

TEST_F(link_on_cuda, calls_are_those_that_cuda_got) {
    const link_cell cell{way::d2h, false, load::none, 4096};
    const std::unique_ptr<link_rig> rig = rig_for(cell);
    const stream_id stream = rig->new_stream().value();
    const auto in_double = [&] { return cuda_.calls() - cuda_.calls(test::cuda_call::has_context); };  // which asks
    const uint64_t before_in_double = in_double();
    const call_totals before = counted_cuda_calls();
    ASSERT_TRUE(rig->dev().copy(stream, copy_direction::d2h, rig->pinned_memory(), rig->device_memory(), 4096).ok());
    const call_totals after = counted_cuda_calls();
    EXPECT_EQ(after.calls - before.calls, in_double() - before_in_double);
    EXPECT_EQ(after.copy_calls - before.copy_calls, 1U);
    EXPECT_GE(after.ns - before.ns, after.copy_ns - before.copy_ns);
    ASSERT_TRUE(rig->finish(stream).ok());
}

// What is promised for each direction: one call per chunk and at most four more.
TEST_F(link_on_cuda, an_activation_takes_the_calls_to_cuda_that_are_promised) {
    for (const uint64_t chunks : {1U, 4U}) {
        constexpr uint64_t k_chunk_bytes = 16384;
        const result<call_cost> cost = measure_call_cost(open(), chunks * k_chunk_bytes, k_chunk_bytes);
        ASSERT_TRUE(cost.ok()) << cost.why().text();
        ASSERT_TRUE(cost.value().cuda.has_value());
        const auto promised = static_cast<double>(chunks + 4);
        EXPECT_EQ(static_cast<double>(cost.value().promised_calls()), promised);
        EXPECT_LE(cost.value().cuda->d2h_calls, promised);
        EXPECT_LE(cost.value().cuda->h2d_calls, promised);
        // Nothing is batched here: as many copies as chunks, and an order before and behind them.
        EXPECT_GE(cost.value().cuda->d2h_calls, static_cast<double>(chunks + 2));
        EXPECT_GE(cost.value().cuda->h2d_calls, static_cast<double>(chunks + 2));
    }
}

}  // namespace
}  // namespace ebb::link
