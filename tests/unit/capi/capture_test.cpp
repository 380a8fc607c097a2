// Captures: steps whose calls become part of a graph, launched again and again with new inputs, on a device that knows
// CUDA's rules and runs a graph in every order that its dependences allow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "capi_fixture.hpp"
#include "capture_rig.hpp"
#include "ebb/ebb.hpp"

namespace ebb::test {
namespace {

using captures = capture_rig;

// ------------------------------------------------------------------------------------------- what is captured --

TEST_F(captures, a_step_of_three_tensors_replayed_a_hundred_times_with_new_inputs) {
    open_with_three();
    eager_steps(2);
    const graph_device::graph step = captured([&] {
        forward();
        backward();
    });
    EXPECT_EQ(stats().graphs, 1U);
    replay({&step});
    for (const tensor &t : tensors_) {
        EXPECT_EQ(t.deleted, 3) << t.name;  // two eager steps and the capture; launches call nothing
    }
}

TEST_F(captures, offload_in_one_graph_and_reload_in_a_second) {
    open_with_three();
    eager_steps(2);
    const graph_device::graph first = captured([&] { forward(); });
    const ebb_graph offloads = graph_;
    const graph_device::graph second = captured([&] { backward(); });
    replay({&first, &second});
    EXPECT_EQ(stats().graphs, 2U);
    EBB_EXPECT_OK(ebb_graph_release(runtime_, offloads));
    EBB_EXPECT_OK(ebb_graph_release(runtime_, graph_));
}

TEST_F(captures, the_memory_is_the_graphs_until_it_is_released) {
    options_.staging_bytes = 8 * k_tensor_bytes;
    open_with_three();
    eager_steps(2);
    const ebb_statistics before = stats();
    EXPECT_EQ(before.pinned_used_bytes, 0U);
    const graph_device::graph step = captured([&] {
        forward();
        backward();
    });
    const ebb_statistics held = stats();
    EXPECT_EQ(held.live_activations, 0U);
    EXPECT_EQ(held.graph_pinned_bytes, 4 * k_tensor_bytes);
    EXPECT_EQ(held.pinned_used_bytes, 4 * k_tensor_bytes);
    EXPECT_GE(held.graph_staging_bytes, 2 * k_tensor_bytes);
    EXPECT_EQ(held.staging_used_bytes, held.graph_staging_bytes);
    // Eager steps go on beside it, and take nothing of the graph's.
    for (int i = 0; i < 5; ++i) {
        eager_steps(1);
        replay({&step}, 3);
    }
    EBB_EXPECT_OK(ebb_graph_release(runtime_, graph_));
    const ebb_statistics after = stats();
    EXPECT_EQ(after.graphs, 0U);
    EXPECT_EQ(after.graph_pinned_bytes, 0U);
    EXPECT_EQ(after.graph_staging_bytes, 0U);
    EXPECT_EQ(after.pinned_used_bytes, 0U);
    EXPECT_EQ(after.staging_used_bytes, 0U);
    EBB_EXPECT_STATUS(ebb_graph_release(runtime_, graph_), EBB_STALE_HANDLE);
}

TEST_F(captures, released_between_two_graphs_what_the_other_uses_stays) {
    open_with_three();
    eager_steps(2);
    const graph_device::graph first = captured([&] { forward(); });
    const ebb_graph offloads = graph_;
    const graph_device::graph second = captured([&] { backward(); });
    EBB_EXPECT_OK(ebb_graph_release(runtime_, offloads));
    EXPECT_EQ(stats().graph_pinned_bytes, 4 * k_tensor_bytes);  // the second reads the blocks
    EBB_EXPECT_OK(ebb_graph_release(runtime_, graph_));
    EXPECT_EQ(stats().pinned_used_bytes, 0U);
}

TEST_F(captures, a_slot_serves_many_reloads_of_one_capture) {
    options_.staging_bytes = 2 * (k_tensor_bytes + 512);
    options_.max_activation_bytes = k_tensor_bytes;
    open();
    make_tensors(std::vector<uint64_t>(12, k_tensor_bytes));
    eager_steps(2);
    const graph_device::graph step = captured([&] {
        forward();
        backward();
    });
    EXPECT_LE(stats().graph_staging_bytes, options_.staging_bytes);
    EXPECT_EQ(stats().no_slot_count, 0U);
    replay({&step}, 30);
}

TEST_F(captures, a_block_serves_several_micro_batches_of_one_capture) {
    open_with_three();
    const auto micro_batches = [&] {
        for (int m = 0; m < 3; ++m) {
            forward();
            backward();
        }
    };
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    micro_batches();
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    const graph_device::graph step = captured(micro_batches);
    EXPECT_EQ(stats().graph_pinned_bytes, 4 * k_tensor_bytes);
    for (int launch = 0; launch < 20; ++launch) {
        ++input_;
        device_->launch_graph(step, stream_id{compute_}, random_);
        synchronize();
    }
    EXPECT_THAT(wrong_, ::testing::IsEmpty());
}

TEST_F(captures, what_a_graph_offloads_can_be_reloaded_outside_behind_each_launch) {
    open_with_three();
    eager_steps(2);
    const graph_device::graph first = captured([&] { forward(); });
    for (int launch = 0; launch < 20; ++launch) {
        ++input_;
        device_->launch_graph(first, stream_id{compute_}, random_);
        backward(false);
        synchronize();
    }
    EXPECT_THAT(wrong_, ::testing::IsEmpty());
    EXPECT_EQ(consumed_, (2 + 20) * tensors_.size());
    for (const tensor &t : tensors_) {
        EBB_EXPECT_OK(ebb_release(runtime_, t.activation));
    }
    EXPECT_EQ(stats().graph_pinned_bytes, 4 * k_tensor_bytes);
    EBB_EXPECT_OK(ebb_graph_release(runtime_, graph_));
    EXPECT_EQ(stats().pinned_used_bytes, 0U);
}

TEST_F(captures, sources_that_are_not_given_up_are_handed_back_in_the_capture) {
    options_.source_bytes = k_automatic;
    options_.device_budget_bytes = 32ULL << 20U;
    open_with_three();
    eager_steps(2);
    const graph_device::graph step = captured([&] {
        forward();
        backward();
    });
    EXPECT_GT(stats().forwarded_count, 0U);
    replay({&step}, 20);
}

TEST_F(captures, a_captured_step_is_not_recorded_and_follows_the_record) {
    open_with_three();
    eager_steps(3);
    const std::string before = record();
    const uint64_t prefetched = stats().reloads_prefetched;
    const graph_device::graph step = captured([&] {
        forward();
        backward();
    });
    EXPECT_GT(stats().reloads_prefetched, prefetched);
    // A step with other calls would be a new record, were it not captured.
    for (int i = 0; i < 3; ++i) {
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        static_cast<void>(captured([&] {
            forward();
            backward();
            forward();
            backward();
        }));
    }
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    EXPECT_EQ(record(), before);
    EXPECT_EQ(stats().order_mismatches, 0U);
    replay({&step}, 3);
}

TEST_F(captures, a_collective_in_a_capture_holds_nothing) {
    open_with_three();
    eager_steps(2);
    const graph_device::graph step = captured([&] {
        EBB_EXPECT_OK(ebb_collective_begin(runtime_, compute_, 1000));
        forward();
        EBB_EXPECT_OK(ebb_collective_end(runtime_, compute_));
        backward();
    });
    replay({&step}, 10);
}

// -------------------------------------------------------------------------------- what was not launched, or is over --

// Copies that a capture prefetches by itself are not what somebody else may read: its graph may never be launched.
TEST_F(captures, what_a_graph_that_is_not_launched_prefetched_is_reloaded_outside) {
    options_.staging_bytes = 16 * k_tensor_bytes;
    open_with_three();
    eager_steps(3);
    const graph_device::graph forward_part = captured([&] { forward(); });
    const ebb_graph offloads = graph_;
    ++input_;
    device_->launch_graph(forward_part, stream_id{compute_}, random_);
    const uint64_t on_demand = stats().reloads_on_demand;
    const graph_device::graph last = captured([&] { read_back(tensors_[2], true); });
    EXPECT_GT(last.size(), 2U) << "nothing was prefetched";
    const ebb_graph unused = graph_;
    read_back(tensors_[1], true);
    EBB_EXPECT_OK(ebb_graph_release(runtime_, unused));
    const graph_device::graph first = captured([&] { read_back(tensors_[0], true); });
    device_->launch_graph(first, stream_id{compute_}, random_);
    synchronize();
    EXPECT_THAT(wrong_, ::testing::IsEmpty());
    EXPECT_EQ(stats().reloads_on_demand - on_demand, 3U);
    EBB_EXPECT_OK(ebb_graph_release(runtime_, graph_));
    EBB_EXPECT_OK(ebb_graph_release(runtime_, offloads));
    EXPECT_EQ(stats().staging_used_bytes, 0U);
}

TEST_F(captures, what_a_capture_without_a_join_read_back_is_reloaded_anew) {
    options_.staging_bytes = 16 * k_tensor_bytes;
    open_with_three();
    eager_steps(3);
    const graph_device::graph forward_part = captured([&] { forward(); });
    const ebb_graph offloads = graph_;
    ++input_;
    device_->launch_graph(forward_part, stream_id{compute_}, random_);
    synchronize();
    device_->begin_capture(stream_id{compute_});
    ebb_reload_info claimed = zeroed<ebb_reload_info>();
    EBB_EXPECT_OK(ebb_reload(runtime_, tensors_[2].activation, compute_, &claimed));
    EXPECT_TRUE(device_->end_capture().empty());
    device_->violations.clear();
    const graph_device::graph next = captured([&] {
        ebb_reload_info back = zeroed<ebb_reload_info>();
        EBB_EXPECT_REFUSED(ebb_reload(runtime_, tensors_[2].activation, compute_, &back), EBB_WRONG_STATE,
                           "return its claims");
        EBB_EXPECT_REFUSED(ebb_use(runtime_, claimed.claim, compute_), EBB_WRONG_STATE, "return its claims");
        EBB_EXPECT_OK(ebb_return(runtime_, claimed.claim, compute_));
        backward();
    });
    device_->launch_graph(next, stream_id{compute_}, random_);
    synchronize();
    EXPECT_THAT(wrong_, ::testing::IsEmpty());
    EBB_EXPECT_OK(ebb_graph_release(runtime_, graph_));
    EBB_EXPECT_OK(ebb_graph_release(runtime_, offloads));
    EXPECT_EQ(stats().staging_used_bytes, 0U);
    EXPECT_EQ(stats().pinned_used_bytes, 0U);
}

// What was copied outside once is not what the first graph offloads at its next launch.
TEST_F(captures, bytes_of_one_launch_are_not_captured_as_those_of_all) {
    options_.staging_bytes = 16 * k_tensor_bytes;
    open_with_three();
    eager_steps(2);
    const graph_device::graph first = captured([&] { forward(); });
    ++input_;
    device_->launch_graph(first, stream_id{compute_}, random_);
    ebb_reload_info claimed = zeroed<ebb_reload_info>();
    EBB_ASSERT_OK(ebb_reload(runtime_, tensors_[0].activation, compute_, &claimed));
    consume(claimed.data, tensors_[0]);
    consumed_ = 0;
    const graph_device::graph second = captured([&] {
        ebb_reload_info back = zeroed<ebb_reload_info>();
        EBB_EXPECT_REFUSED(ebb_reload(runtime_, tensors_[0].activation, compute_, &back), EBB_WRONG_STATE,
                           "return its claims");
        EBB_EXPECT_OK(ebb_return(runtime_, claimed.claim, compute_));
        backward();
    });
    replay({&first, &second}, 10);
}

// The record says that it is read twice; nobody knows whether the graph is launched between.
TEST_F(captures, bytes_of_one_launch_are_not_kept_for_a_reload_behind_the_next) {
    options_.staging_bytes = 16 * k_tensor_bytes;
    open_with_three();
    for (int step = 0; step < 3; ++step) {
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        ++input_;
        forward();
        backward(false);
        backward();
        synchronize();
    }
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    const graph_device::graph step = captured([&] { forward(); });
    for (int launch = 0; launch < 5; ++launch) {
        ++input_;
        device_->launch_graph(step, stream_id{compute_}, random_);
        backward(false);
        synchronize();
    }
    EXPECT_THAT(wrong_, ::testing::IsEmpty());
}

// A claim from a graph, read and returned outside: that its last launch is over does not mean that the reader is.
TEST_F(captures, a_graphs_slots_are_used_again_behind_their_last_readers_outside) {
    options_.staging_bytes = k_tensor_bytes + 1024;
    options_.max_activation_bytes = k_tensor_bytes;
    open();
    make_tensors({k_tensor_bytes, k_tensor_bytes});
    for (const bool returned_first : {true, false}) {
        eager_steps(2);
        ebb_reload_info back = zeroed<ebb_reload_info>();
        const graph_device::graph step = captured([&] {
            save(tensors_[0]);
            EBB_EXPECT_OK(ebb_reload(runtime_, tensors_[0].activation, compute_, &back));
        });
        device_->launch_graph(step, stream_id{compute_}, random_);
        synchronize();
        std::promise<void> go;
        static std::promise<void> *gate;
        gate = &go;
        EBB_ASSERT_OK(ebb_host_launch(
            runtime_, compute_, [](void *) { gate->get_future().wait(); }, nullptr));
        consume(back.data, tensors_[0]);
        if (returned_first) {
            EBB_ASSERT_OK(ebb_return(runtime_, back.claim, compute_));
            EBB_EXPECT_OK(ebb_graph_release(runtime_, graph_));
        } else {
            EBB_EXPECT_OK(ebb_graph_release(runtime_, graph_));
            EBB_ASSERT_OK(ebb_return(runtime_, back.claim, compute_));
        }
        EBB_ASSERT_OK(ebb_release(runtime_, tensors_[0].activation));
        EXPECT_EQ(stats().staging_used_bytes, 0U);
        std::swap(compute_, other_);
        save(tensors_[1]);
        read_back(tensors_[1], true);
        static std::atomic<bool> overtaken;
        overtaken = false;
        EBB_ASSERT_OK(ebb_host_launch(
            runtime_, compute_, [](void *) { overtaken = true; }, nullptr));
        for (int look = 0; look < 200 && !overtaken; ++look) {
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
        EXPECT_FALSE(overtaken);
        go.set_value();
        synchronize();
        std::swap(compute_, other_);
        synchronize();
        EXPECT_THAT(wrong_, ::testing::IsEmpty());
    }
}

// ------------------------------------------------------------------------------------------------ refused --

TEST_F(captures, before_any_memory_was_taken_a_capture_is_refused_and_not_harmed) {
    open_with_three();
    device_->begin_capture(stream_id{compute_});
    const ebb_offload_args a = args_for(tensors_[0]);
    EBB_EXPECT_REFUSED(ebb_offload(runtime_, &a, &info_), EBB_WRONG_STATE, "run a training step without capturing");
    produce(tensors_[0]);
    EXPECT_EQ(device_->end_capture().size(), 1U);
    EXPECT_EQ(stats().graphs, 0U);
    EXPECT_EQ(tensors_[0].deleted, 0);
}

TEST_F(captures, verify_mode_is_refused_and_the_capture_not_harmed) {
    options_.verify = true;
    open_with_three();
    eager_steps(2);
    device_->begin_capture(stream_id{compute_});
    const ebb_offload_args a = args_for(tensors_[0]);
    EBB_EXPECT_REFUSED(ebb_offload(runtime_, &a, &info_), EBB_UNSUPPORTED, "verify");
    produce(tensors_[0]);
    EXPECT_EQ(device_->end_capture().size(), 1U);
}

TEST_F(captures, streams_of_a_call_are_all_in_the_capture_or_none) {
    open_with_three();
    eager_steps(2);
    const graph_device::graph step = captured([&] {
        ebb_offload_args a = args_for(tensors_[0]);
        a.home = &other_;
        EBB_EXPECT_REFUSED(ebb_offload(runtime_, &a, &info_), EBB_WRONG_STATE, "same capture");
        const ebb_stream thread = EBB_STREAM_CALLING_THREAD;
        a.home = &thread;
        EBB_EXPECT_REFUSED(ebb_offload(runtime_, &a, &info_), EBB_WRONG_STATE, "same capture");
        const ebb_stream both[] = {compute_, other_};
        a.home = nullptr;
        a.producers = both;
        a.producer_count = 2;
        EBB_EXPECT_REFUSED(ebb_offload(runtime_, &a, &info_), EBB_WRONG_STATE, "same capture");
        forward();
        ebb_reload_info back = zeroed<ebb_reload_info>();
        EBB_EXPECT_REFUSED(ebb_reload(runtime_, tensors_[0].activation, other_, &back), EBB_WRONG_STATE,
                           "ebb_graph_join comes first");
        EBB_EXPECT_OK(ebb_reload(runtime_, tensors_[0].activation, compute_, &back));
        EBB_EXPECT_REFUSED(ebb_wait(runtime_, tensors_[0].activation), EBB_WRONG_STATE, "before its graph is launched");
        EBB_EXPECT_OK(ebb_return(runtime_, back.claim, compute_));
        backward();
    });
    replay({&step}, 5);
}

TEST_F(captures, join_is_the_last_call_of_a_capture) {
    open_with_three();
    eager_steps(2);
    ebb_graph none = 0;
    EBB_EXPECT_REFUSED(ebb_graph_join(runtime_, compute_, &none), EBB_WRONG_STATE, "not part of a capture");
    EBB_EXPECT_REFUSED(ebb_graph_join(runtime_, compute_, nullptr), EBB_INVALID_ARGUMENT, "graph is null");
    EBB_EXPECT_STATUS(ebb_graph_release(runtime_, 4711), EBB_STALE_HANDLE);
    device_->begin_capture(stream_id{compute_});
    forward();
    EBB_EXPECT_OK(ebb_graph_join(runtime_, compute_, &graph_));
    EBB_EXPECT_REFUSED(ebb_graph_join(runtime_, compute_, &none), EBB_WRONG_STATE, "last call");
    const ebb_offload_args a = args_for(tensors_[0]);
    EBB_EXPECT_REFUSED(ebb_offload(runtime_, &a, &info_), EBB_WRONG_STATE, "last call");
    EXPECT_FALSE(device_->end_capture().empty());
}

TEST_F(captures, a_copy_that_is_under_way_outside_is_refused_by_name) {
    open_with_three();
    eager_steps(2);
    std::promise<void> go;
    static std::promise<void> *gate;
    gate = &go;
    EBB_ASSERT_OK(ebb_host_launch(
        runtime_, compute_, [](void *) { gate->get_future().wait(); }, nullptr));
    forward();
    device_->begin_capture(stream_id{other_});
    ebb_reload_info back = zeroed<ebb_reload_info>();
    EBB_EXPECT_REFUSED(ebb_reload(runtime_, tensors_[1].activation, other_, &back), EBB_WRONG_STATE,
                       "'t2' is still being copied outside of this capture");
    EBB_EXPECT_OK(ebb_graph_join(runtime_, other_, &graph_));
    static_cast<void>(device_->end_capture());
    go.set_value();
    synchronize();
    backward();
    synchronize();
    EXPECT_THAT(wrong_, ::testing::IsEmpty());
}

TEST_F(captures, what_finds_no_memory_while_a_capture_goes_on_is_kept) {
    options_.staging_bytes = 100 * k_tensor_bytes;
    options_.max_activation_bytes = 40 * k_tensor_bytes;
    open_with_three();
    eager_steps(2);
    make_tensors({40 * k_tensor_bytes, k_tensor_bytes});
    const graph_device::graph step = captured([&] {
        forward();
        backward();
    });
    replay({&step}, 5);
    EXPECT_GT(stats().kept_count, 0U);
    EXPECT_THAT(log_lines_, ::testing::Contains(::testing::HasSubstr("while a capture goes on")));
}

TEST_F(captures, one_that_ends_without_a_join_leaves_nothing) {
    options_.source_bytes = k_automatic;
    options_.device_budget_bytes = 32ULL << 20U;
    open_with_three();
    eager_steps(2);
    device_->begin_capture(stream_id{compute_});
    forward();
    EXPECT_TRUE(device_->end_capture().empty());
    ASSERT_THAT(device_->violations, ::testing::SizeIs(::testing::Ge(1)));
    device_->violations.clear();
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    EXPECT_THAT(log_lines_, ::testing::Contains(::testing::HasSubstr("without ebb_graph_join")));
    ebb_reload_info back = zeroed<ebb_reload_info>();
    EBB_EXPECT_REFUSED(ebb_reload(runtime_, tensors_[0].activation, compute_, &back), EBB_WRONG_STATE,
                       "came to nothing");
    for (const tensor &t : tensors_) {
        EBB_EXPECT_OK(ebb_release(runtime_, t.activation));
    }
    const ebb_statistics s = stats();
    EXPECT_EQ(s.graphs, 0U);
    EXPECT_EQ(s.pinned_used_bytes, 0U);
    EXPECT_EQ(s.live_activations, 0U);
    eager_steps(2);
    EXPECT_THAT(wrong_, ::testing::IsEmpty());
    const graph_device::graph step = captured([&] {
        forward();
        backward();
    });
    replay({&step}, 5);
}

TEST_F(captures, the_wrapper_releases_what_it_joined) {
    open_with_three();
    eager_steps(2);
    synchronize();
    device_->begin_capture(stream_id{compute_});
    forward();
    backward();
    ebb::cpp::graph first(runtime_, compute_);
    static_cast<void>(device_->end_capture());
    ebb::cpp::graph moved(std::move(first));
    EXPECT_NE(moved.id(), 0U);
    EXPECT_EQ(stats().graphs, 1U);
    EXPECT_THROW(ebb::cpp::graph(runtime_, compute_), ebb::cpp::error);  // no capture
    { const ebb::cpp::graph last(std::move(moved)); }
    EXPECT_EQ(stats().graphs, 0U);
}

TEST_F(captures, close_is_busy_while_graphs_hold_memory) {
    open_with_three();
    eager_steps(2);
    static_cast<void>(captured([&] {
        forward();
        backward();
    }));
    EBB_EXPECT_REFUSED(ebb_runtime_close(runtime_, 0), EBB_BUSY, "not released");
    EBB_EXPECT_OK(ebb_graph_release(runtime_, graph_));
    EBB_EXPECT_OK(ebb_runtime_close(std::exchange(runtime_, nullptr), 0));
}

TEST_F(captures, bytes_come_into_the_callers_memory) {
    open_with_three();
    eager_steps(2);
    const graph_device::graph first = captured([&] { forward(); });
    for (tensor &t : tensors_) {
        void *own = nullptr;
        EBB_ASSERT_OK(ebb_host_alloc(runtime_, t.size_bytes, &own));
        own_.push_back(own);
    }
    const graph_device::graph second = captured([&] {
        for (size_t i = tensors_.size(); i-- > 0;) {
            EBB_EXPECT_OK(ebb_reload_into(runtime_, tensors_[i].activation, own_[i], tensors_[i].size_bytes, compute_));
            consume(own_[i], tensors_[i]);
            EBB_EXPECT_OK(ebb_release(runtime_, tensors_[i].activation));
        }
    });
    replay({&first, &second}, 20);
}

// Its home stream is part of a capture now and cannot come behind a copy outside.
TEST_F(captures, a_source_from_outside_that_is_released_in_a_capture_goes_when_its_copy_is_done) {
    options_.source_bytes = k_automatic;
    options_.device_budget_bytes = 32ULL << 20U;
    open_with_three();
    eager_steps(2);
    std::promise<void> go;
    static std::promise<void> *gate;
    gate = &go;
    EBB_ASSERT_OK(ebb_host_launch(
        runtime_, other_, [](void *) { gate->get_future().wait(); }, nullptr));
    ebb_offload_args a = args_for(tensors_[0]);
    a.producers = &other_;
    const ebb_stream home = compute_;
    a.home = &home;
    const int deleted = tensors_[0].deleted;
    EBB_ASSERT_OK(ebb_offload(runtime_, &a, &info_));
    device_->begin_capture(stream_id{compute_});
    EBB_EXPECT_OK(ebb_release(runtime_, info_.activation));
    EXPECT_EQ(tensors_[0].deleted, deleted);
    EBB_EXPECT_OK(ebb_graph_join(runtime_, compute_, &graph_));
    static_cast<void>(device_->end_capture());
    go.set_value();
    EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, other_));
    while (tensors_[0].deleted == deleted) {
        EBB_ASSERT_OK(ebb_progress(runtime_));
    }
}

TEST_F(captures, devices_without_graphs_say_so) {
    host_device_options host;
    host.capacity_bytes = 1U << 20U;
    auto dev = std::make_unique<host_device>(host);
    result<ebb_runtime *> made = capi::make_runtime(std::move(dev), nullptr, options_, logger(), nullptr);
    ASSERT_TRUE(made.ok());
    EBB_EXPECT_REFUSED(ebb_graph_join(made.value(), EBB_STREAM_DEFAULT, &graph_), EBB_UNSUPPORTED, "has no graphs");
    EBB_EXPECT_OK(ebb_runtime_close(made.value(), 0));
}

}  // namespace
}  // namespace ebb::test
