// Captures: steps whose calls become part of a graph, launched again and again with new inputs, on a device that knows
// CUDA's rules and runs a graph in every order that its dependences allow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <map>
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
    EXPECT_EQ(stats().kept_count, 0U);
    for (int launch = 0; launch < 20; ++launch) {
        next_input();
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
        next_input();
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
    options_.source_bytes = k_automatic;
    options_.device_budget_bytes = 32ULL << 20U;
    open_with_three();
    eager_steps(2);
    const graph_device::graph without = captured([&] {
        forward();
        backward();
    });
    EBB_EXPECT_OK(ebb_graph_release(runtime_, graph_));
    EBB_EXPECT_OK(ebb_collective_begin(runtime_, other_, 1000));
    const graph_device::graph step = captured([&] {
        EBB_EXPECT_OK(ebb_collective_begin(runtime_, compute_, 1000));
        forward();
        EBB_EXPECT_OK(ebb_collective_end(runtime_, compute_));
        backward();
    });
    EXPECT_EQ(step.size(), without.size());
    replay({&step}, 10);
}

// ------------------------------------------------------------------------------------------ inside and outside --

// In whichever way a capture comes to read a slot that was filled outside, it is the graph's.
TEST_F(captures, a_slot_from_outside_that_a_capture_reads_is_its_graphs) {
    options_.staging_bytes = 16 * k_tensor_bytes;
    for (const int way : {0, 1, 2}) {
        open_with_three();
        eager_steps(2);
        next_input();
        save(tensors_[0]);
        ebb_reload_info outside = zeroed<ebb_reload_info>();
        EBB_ASSERT_OK(ebb_reload(runtime_, tensors_[0].activation, way == 1 ? other_ : compute_, &outside));
        EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, other_));
        const uint64_t read_input = input_;
        const graph_device::graph step = captured([&] {
            ebb_reload_info back = zeroed<ebb_reload_info>();
            if (way == 0) {
                EBB_EXPECT_OK(ebb_reload(runtime_, tensors_[0].activation, compute_, &back));
                consume(back.data, tensors_[0]);
                EBB_EXPECT_OK(ebb_return(runtime_, back.claim, compute_));
            } else if (way == 1) {
                EBB_EXPECT_OK(ebb_use(runtime_, outside.claim, compute_));
                consume(outside.data, tensors_[0]);
            } else {
                consume(outside.data, tensors_[0]);
                EBB_EXPECT_OK(ebb_return(runtime_, outside.claim, compute_));
            }
        });
        if (way != 2) {
            EBB_EXPECT_OK(ebb_return(runtime_, outside.claim, way == 1 ? other_ : compute_));
        }
        EBB_EXPECT_OK(ebb_release(runtime_, tensors_[0].activation));
        for (int launch = 0; launch < 5; ++launch) {
            eager_steps(1);
            const uint64_t latest = use_input(read_input);
            device_->launch_graph(step, stream_id{compute_}, random_);
            static_cast<void>(use_input(latest));
        }
        EXPECT_THAT(wrong_, ::testing::IsEmpty()) << way;
        EBB_EXPECT_OK(ebb_graph_release(runtime_, graph_));
        EXPECT_EQ(stats().staging_used_bytes, 0U) << way;
        EXPECT_EQ(stats().pinned_used_bytes, 0U) << way;
        tensors_.clear();
        EBB_EXPECT_OK(ebb_runtime_close(std::exchange(runtime_, nullptr), 0));
    }
}

TEST_F(captures, memory_is_taken_again_when_none_is_open) {
    options_.staging_bytes = 100 * k_tensor_bytes;
    options_.max_activation_bytes = 40 * k_tensor_bytes;
    open_with_three();
    eager_steps(2);
    static_cast<void>(captured([&] { forward(); }));
    backward();
    make_tensors({40 * k_tensor_bytes});
    eager_steps(1);
    EXPECT_EQ(stats().kept_count, 0U);
    EXPECT_THAT(log_lines_, ::testing::IsEmpty());
}

// Its stream is part of a capture that Ebb knows nothing of: no call of ours has been part of it.
TEST_F(captures, a_reader_whose_stream_is_captured_meanwhile_is_refused) {
    options_.staging_bytes = 16 * k_tensor_bytes;
    open_with_three();
    eager_steps(2);
    next_input();
    forward();
    ebb_reload_info back = zeroed<ebb_reload_info>();
    EBB_ASSERT_OK(ebb_reload(runtime_, tensors_[0].activation, compute_, &back));
    EBB_ASSERT_OK(ebb_use(runtime_, back.claim, other_));
    device_->begin_capture(stream_id{other_});
    EBB_EXPECT_REFUSED(ebb_return(runtime_, back.claim, compute_), EBB_WRONG_STATE, "are not part of");
    static_cast<void>(device_->end_capture());
    EBB_EXPECT_OK(ebb_return(runtime_, back.claim, compute_));
    backward();
    synchronize();
    EXPECT_THAT(wrong_, ::testing::IsEmpty());
}

TEST_F(captures, lanes_of_one_that_was_joined_are_its_own_until_it_ends) {
    options_.staging_bytes = 16 * k_tensor_bytes;
    open_with_three();
    eager_steps(2);
    synchronize();
    device_->begin_capture(stream_id{compute_});
    save(tensors_[0]);
    ebb_graph first = 0;
    EBB_EXPECT_OK(ebb_graph_join(runtime_, compute_, &first));
    std::swap(compute_, other_);
    device_->begin_capture(stream_id{compute_});
    save(tensors_[1]);
    read_back(tensors_[1], true);
    EBB_EXPECT_OK(ebb_graph_join(runtime_, compute_, &graph_));
    EXPECT_FALSE(device_->end_capture(stream_id{compute_}).empty());
    EXPECT_FALSE(device_->end_capture(stream_id{other_}).empty());
    EBB_EXPECT_OK(ebb_release(runtime_, tensors_[0].activation));
}

// More streams than a set of points holds are folded into one, on a stream that is part of the same capture or of none.
// And a block that is used again waits for who read it last, on whichever stream.
TEST_F(captures, several_streams_of_the_caller_take_part) {
    options_.staging_bytes = 16 * k_tensor_bytes;
    open_with_three();
    std::vector<ebb_stream> producers{compute_};
    for (int i = 0; i < 6; ++i) {
        EBB_ASSERT_OK(ebb_host_stream_create(runtime_, &producers.emplace_back()));
    }
    const auto all_streams = [&](bool fork) {
        for (size_t i = 1; i < producers.size(); ++i) {
            EXPECT_TRUE(
                device_
                    ->come_behind(stream_id{fork ? producers[i] : compute_}, stream_id{fork ? compute_ : producers[i]})
                    .ok());
        }
    };
    const auto body = [&] {
        for (int micro_batch = 0; micro_batch < 4; ++micro_batch) {
            tensor &t = tensors_[0];
            produce(t);
            all_streams(true);
            ebb_offload_args a = args_for(t);
            a.producers = producers.data();
            a.producer_count = producers.size();
            EBB_ASSERT_OK(ebb_offload(runtime_, &a, &info_));
            ebb_reload_info back = zeroed<ebb_reload_info>();
            const ebb_stream home = std::exchange(compute_, producers[3]);
            EBB_ASSERT_OK(ebb_reload(runtime_, info_.activation, compute_, &back));
            consume(back.data, t);
            EBB_ASSERT_OK(ebb_return(runtime_, back.claim, compute_));
            compute_ = home;
            EBB_ASSERT_OK(ebb_release(runtime_, info_.activation));
        }
        all_streams(false);
    };
    eager_steps(1);
    next_input();
    body();
    synchronize();
    EXPECT_THAT(wrong_, ::testing::IsEmpty());
    std::vector<graph_device::graph> graphs;
    for (int capture = 0; capture < 2; ++capture) {
        graphs.push_back(captured(body));
        EXPECT_FALSE(graphs.back().empty());
        for (int launch = 0; launch < 50; ++launch) {
            next_input();
            device_->launch_graph(graphs[static_cast<size_t>(launch) % graphs.size()], stream_id{compute_}, random_);
            synchronize();
        }
        EXPECT_THAT(wrong_, ::testing::IsEmpty());
    }
}

// Nobody can tell when the graph is launched, so nothing of it comes before it is asked for.
TEST_F(captures, nothing_that_a_graph_offloads_is_prefetched_outside) {
    options_.staging_bytes = 16 * k_tensor_bytes;
    open_with_three();
    eager_steps(3);
    const graph_device::graph first = captured([&] { forward(); });
    for (int launch = 0; launch < 3; ++launch) {
        EBB_EXPECT_OK(ebb_collective_begin(runtime_, other_, 0));
        EBB_EXPECT_OK(ebb_collective_end(runtime_, other_));
        next_input();
        device_->launch_graph(first, stream_id{compute_}, random_);
        backward(false);
        synchronize();
    }
    EXPECT_THAT(wrong_, ::testing::IsEmpty());
}

TEST_F(captures, steps_inside_are_not_recorded_and_not_timed) {
    options_.sample_every = 1;
    open_with_three();
    eager_steps(3);
    const std::string before = record();
    const graph_device::graph steps = captured([&] {
        for (int i = 0; i < 6; ++i) {
            forward();
            backward();
            forward();
            backward();
            EBB_EXPECT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        }
    });
    EXPECT_FALSE(steps.empty());
    EXPECT_EQ(record(), before);
    EXPECT_EQ(stats().order_mismatches, 0U);
    next_input();
    device_->launch_graph(steps, stream_id{compute_}, random_);
    synchronize();
    EXPECT_THAT(wrong_, ::testing::IsEmpty());
}

// What was copied outside once are not the bytes that the same storage has at each launch.
TEST_F(captures, a_save_in_a_capture_shares_no_copy_from_outside) {
    options_.staging_bytes = 16 * k_tensor_bytes;
    open_with_three();
    eager_steps(2);
    const auto save_stored = [&] {
        produce(tensors_[0]);
        ebb_offload_args a = args_for(tensors_[0]);
        a.storage_id = 17;
        a.storage_version = 4;
        EBB_ASSERT_OK(ebb_offload(runtime_, &a, &info_));
        tensors_[0].activation = info_.activation;
    };
    next_input();
    save_stored();
    const ebb_activation outside = info_.activation;
    consumed_ = 0;
    const graph_device::graph step = captured([&] {
        save_stored();
        read_back(tensors_[0], true);
    });
    for (int launch = 0; launch < 5; ++launch) {
        next_input();
        device_->launch_graph(step, stream_id{compute_}, random_);
        synchronize();
    }
    EXPECT_EQ(consumed_, 5U);
    EXPECT_THAT(wrong_, ::testing::IsEmpty());
    EBB_EXPECT_OK(ebb_release(runtime_, outside));
}

// Memory whose last user outside is not over is not had in a capture, and neither is the capture harmed.
TEST_F(captures, memory_that_is_in_use_outside_is_not_taken) {
    options_.staging_bytes = k_tensor_bytes + 1024;
    options_.max_activation_bytes = k_tensor_bytes;
    open();
    make_tensors({k_tensor_bytes, k_tensor_bytes});
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    save(tensors_[1]);
    read_back(tensors_[1], true);  // one block, one slot
    synchronize();
    std::promise<void> go;
    static std::promise<void> *gate;
    gate = &go;
    save(tensors_[1]);
    ebb_reload_info back = zeroed<ebb_reload_info>();
    EBB_ASSERT_OK(ebb_reload(runtime_, tensors_[1].activation, other_, &back));
    EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, other_));
    EBB_ASSERT_OK(ebb_host_launch(
        runtime_, other_, [](void *) { gate->get_future().wait(); }, nullptr));
    EBB_ASSERT_OK(ebb_return(runtime_, back.claim, other_));
    EBB_ASSERT_OK(ebb_release(runtime_, tensors_[1].activation));
    static_cast<void>(captured([&] {
        save(tensors_[0]);
        EXPECT_EQ(info_.placement, EBB_PLACE_OFFLOAD);
        EBB_EXPECT_REFUSED(ebb_reload(runtime_, tensors_[0].activation, compute_, &back), EBB_NO_SLOT,
                           "no staging room");
        EBB_EXPECT_OK(ebb_release(runtime_, tensors_[0].activation));
    }));
    EBB_EXPECT_OK(ebb_graph_release(runtime_, graph_));
    // The copy out of that block comes behind the gate.
    std::swap(compute_, other_);
    save(tensors_[1]);
    EBB_ASSERT_OK(ebb_release(runtime_, tensors_[1].activation));
    std::swap(compute_, other_);
    device_->begin_capture(stream_id{compute_});
    save(tensors_[0]);
    EXPECT_EQ(info_.reason, EBB_REASON_CAPTURE);
    EBB_EXPECT_OK(ebb_release(runtime_, tensors_[0].activation));
    EBB_EXPECT_OK(ebb_graph_join(runtime_, compute_, &graph_));
    EXPECT_FALSE(device_->end_capture().empty());
    go.set_value();
    EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, other_));
}

// What a lent allocator gave for a capture stays out until the graph is released, and goes back then.
TEST_F(captures, what_is_lent_for_a_capture_goes_back_with_its_graph) {
    struct pool {
        std::map<void *, uint64_t> out;
        std::function<void(void *, uint64_t)> use_again;
        std::vector<void *> retired;  // launches may be on their way to it
        ~pool() {
            for (void *data : retired) {
                std::free(data);
            }
        }
    } lent;
    // Behind what is on the home stream.
    lent.use_again = [this](void *data, uint64_t size_bytes) {
        launch(
            [](void *argument) {
                const auto *k = static_cast<kernel *>(argument);
                std::memset(k->data, 0xDD, k->size_bytes);
            },
            {this, data, size_bytes, 0});
    };
    ebb_allocator from{};
    from.context = &lent;
    from.alloc = [](void *context, uint64_t size_bytes, uint64_t alignment, ebb_stream) {
        void *data = std::aligned_alloc(alignment, size_bytes);
        static_cast<pool *>(context)->out[data] = size_bytes;
        return data;
    };
    from.free = [](void *context, void *data, uint64_t size_bytes, ebb_stream) {
        auto *p = static_cast<pool *>(context);
        EXPECT_EQ(p->out[data], size_bytes);
        p->use_again(data, size_bytes);
        p->out.erase(data);
        p->retired.push_back(data);
    };
    open(&from);
    make_tensors({k_tensor_bytes, 2 * k_tensor_bytes, k_tensor_bytes});
    eager_steps(3);
    EXPECT_TRUE(lent.out.empty());
    const graph_device::graph first = captured([&] {
        forward();
        backward();
    });
    const ebb_graph first_graph = graph_;
    const size_t held = lent.out.size();
    EXPECT_GT(held, 0U);
    replay({&first}, 5);
    eager_steps(1);
    replay({&first}, 5);
    const graph_device::graph second = captured([&] {
        forward();
        backward();
    });
    EXPECT_GT(lent.out.size(), held);
    EBB_EXPECT_OK(ebb_graph_release(runtime_, first_graph));
    EXPECT_GT(lent.out.size(), 0U);
    replay({&second}, 5);
    EBB_EXPECT_OK(ebb_graph_release(runtime_, graph_));
    EXPECT_TRUE(lent.out.empty());
    EXPECT_EQ(stats().staging_used_bytes, 0U);
    EBB_EXPECT_OK(ebb_runtime_close(std::exchange(runtime_, nullptr), 0));
}

// -------------------------------------------------------------------------------- what was not launched, or is over --

// Copies that a capture prefetches by itself are not what somebody else may read: its graph may never be launched.
TEST_F(captures, what_a_graph_that_is_not_launched_prefetched_is_reloaded_outside) {
    options_.staging_bytes = 16 * k_tensor_bytes;
    open_with_three();
    eager_steps(3);
    const graph_device::graph forward_part = captured([&] { forward(); });
    const ebb_graph offloads = graph_;
    next_input();
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
    next_input();
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
    next_input();
    device_->launch_graph(first, stream_id{compute_}, random_);
    ebb_reload_info claimed = zeroed<ebb_reload_info>();
    EBB_ASSERT_OK(ebb_reload(runtime_, tensors_[0].activation, compute_, &claimed));
    consume(claimed.data, tensors_[0]);
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
        next_input();
        forward();
        backward(false);
        backward();
        synchronize();
    }
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    const graph_device::graph step = captured([&] { forward(); });
    for (int launch = 0; launch < 5; ++launch) {
        next_input();
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

// ------------------------------------------------------------------------------------------- several, and broken ones
// --

TEST_F(captures, two_at_once_keep_apart) {
    options_.staging_bytes = 16 * k_tensor_bytes;
    open_with_three();
    eager_steps(2);
    synchronize();
    EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, other_));
    tensor &one = tensors_[0];
    tensor &two = tensors_[1];
    ebb_graph graphs[2] = {};
    ebb_reload_info back = zeroed<ebb_reload_info>();
    device_->begin_capture(stream_id{compute_});
    save(one);
    std::swap(compute_, other_);
    device_->begin_capture(stream_id{compute_});
    save(two);
    const ebb_stream both[] = {compute_, other_};
    ebb_offload_args a = args_for(tensors_[2]);
    a.producers = both;
    a.producer_count = 2;
    EBB_EXPECT_REFUSED(ebb_offload(runtime_, &a, &info_), EBB_WRONG_STATE, "same capture");
    EBB_EXPECT_REFUSED(ebb_reload(runtime_, one.activation, compute_, &back), EBB_WRONG_STATE, "");
    EBB_ASSERT_OK(ebb_reload(runtime_, two.activation, compute_, &back));
    EBB_EXPECT_STATUS(ebb_use(runtime_, back.claim, other_), EBB_WRONG_STATE);
    consume(back.data, two);
    EBB_ASSERT_OK(ebb_return(runtime_, back.claim, compute_));
    EXPECT_EQ(stats().graphs, 2U);
    EBB_EXPECT_OK(ebb_graph_join(runtime_, other_, &graphs[0]));
    const graph_device::graph first = device_->end_capture(stream_id{other_});
    // One of the two is over. Memory stays as it is until the other is.
    EBB_EXPECT_OK(ebb_graph_release(runtime_, graphs[0]));
    EBB_EXPECT_OK(ebb_release(runtime_, one.activation));
    read_back(two, true);
    EBB_EXPECT_OK(ebb_graph_join(runtime_, compute_, &graphs[1]));
    const graph_device::graph second = device_->end_capture(stream_id{compute_});
    EXPECT_FALSE(first.empty());
    for (int launch = 0; launch < 20; ++launch) {
        next_input();
        device_->launch_graph(second, stream_id{compute_}, random_);
        synchronize();
    }
    EXPECT_THAT(wrong_, ::testing::IsEmpty());
    EBB_EXPECT_OK(ebb_graph_release(runtime_, graphs[1]));
    EXPECT_EQ(stats().pinned_used_bytes, 0U);
    EXPECT_EQ(stats().staging_used_bytes, 0U);
    eager_steps(2);
    EXPECT_THAT(wrong_, ::testing::IsEmpty());
}

// The driver gives a capture up for reasons of its own, between any two calls of ours on its streams.
TEST_F(captures, one_that_is_given_up_anywhere_takes_nothing_along) {
    options_.staging_bytes = 16 * k_tensor_bytes;
    open_with_three();
    eager_steps(3);
    const int before = tensors_[0].deleted + tensors_[1].deleted + tensors_[2].deleted;
    int offloaded = 0;
    for (int calls = 0; calls < 80; ++calls) {
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        device_->calls_until_invalid = -1;
        device_->begin_capture(stream_id{compute_});
        device_->calls_until_invalid = calls;
        bool whole = true;
        const auto note = [&whole](ebb_status s) {
            whole = whole && s == EBB_OK;
            return s == EBB_OK;
        };
        std::vector<ebb_activation> live;
        std::vector<ebb_claim> claims;
        for (tensor &t : tensors_) {
            ebb_offload_args a = args_for(t);
            a.deleter = count_deleted;
            if (note(ebb_offload(runtime_, &a, &info_))) {
                live.push_back(info_.activation);
                ++offloaded;
            }
        }
        ebb_reload_info back = zeroed<ebb_reload_info>();
        for (size_t i = live.size(); i-- > 1;) {
            if (note(ebb_reload(runtime_, live[i], compute_, &back)) &&
                !note(ebb_return(runtime_, back.claim, compute_))) {
                claims.push_back(back.claim);
            }
            if (calls % 2 == 0) {
                EBB_EXPECT_OK(ebb_release(runtime_, live[i]));
                live.pop_back();
            }
        }
        ebb_graph made = 0;
        const bool joined = note(ebb_graph_join(runtime_, compute_, &made));
        device_->calls_until_invalid = -1;
        EXPECT_EQ(device_->end_capture(stream_id{compute_}).empty(), !joined)
            << calls << ::testing::PrintToString(device_->violations);
        device_->violations.clear();
        if (joined) {
            EBB_EXPECT_OK(ebb_graph_release(runtime_, made));
        }
        static_cast<void>(ebb_step(runtime_, EBB_PHASE_TRAIN));  // says what failed
        EBB_EXPECT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        for (const ebb_claim c : claims) {
            EBB_EXPECT_OK(ebb_return(runtime_, c, compute_));
        }
        for (const ebb_activation a : live) {
            EBB_EXPECT_OK(ebb_release(runtime_, a));
        }
        static_cast<void>(ebb_progress(runtime_));
        device_->violations.clear();
        const ebb_statistics s = stats();
        ASSERT_EQ(s.graphs, 0U) << calls;
        EXPECT_EQ(s.live_activations, 0U) << calls;
        ASSERT_EQ(s.staging_used_bytes, 0U) << calls;
        ASSERT_EQ(s.pinned_used_bytes, 0U) << calls;
        EXPECT_EQ(s.kept_bytes + s.source_bytes, 0U) << calls;
    }
    device_->calls_until_invalid = -1;
    eager_steps(3);
    EXPECT_THAT(wrong_, ::testing::IsEmpty());
    const graph_device::graph step = captured([&] {
        forward();
        backward();
    });
    replay({&step}, 5);
    EBB_EXPECT_OK(ebb_graph_release(runtime_, graph_));
    EBB_EXPECT_OK(ebb_runtime_close(std::exchange(runtime_, nullptr), 0));
    EXPECT_EQ(tensors_[0].deleted + tensors_[1].deleted + tensors_[2].deleted, before + offloaded + 12);
}

TEST_F(captures, a_graph_is_released_while_the_capture_that_reads_its_blocks_goes_on) {
    options_.staging_bytes = 16 * k_tensor_bytes;
    open_with_three();
    eager_steps(2);
    const graph_device::graph first = captured([&] { forward(); });
    const ebb_graph offloads = graph_;
    next_input();
    device_->launch_graph(first, stream_id{compute_}, random_);
    const graph_device::graph second = captured([&] {
        read_back(tensors_[2], true);
        EBB_EXPECT_OK(ebb_graph_release(runtime_, offloads));
        EBB_EXPECT_STATUS(ebb_graph_release(runtime_, offloads), EBB_STALE_HANDLE);
        read_back(tensors_[1], true);
        read_back(tensors_[0], true);
    });
    EXPECT_EQ(stats().graph_pinned_bytes, 4 * k_tensor_bytes);
    for (int launch = 0; launch < 10; ++launch) {
        device_->launch_graph(second, stream_id{compute_}, random_);
        synchronize();
    }
    EXPECT_THAT(wrong_, ::testing::IsEmpty());
    EBB_EXPECT_OK(ebb_graph_release(runtime_, graph_));
    EXPECT_EQ(stats().pinned_used_bytes, 0U);
}

TEST_F(captures, one_without_a_join_is_gone_at_a_forced_close) {
    options_.source_bytes = k_automatic;
    options_.device_budget_bytes = 32ULL << 20U;
    open_with_three();
    eager_steps(2);
    device_->begin_capture(stream_id{compute_});
    forward();
    EXPECT_TRUE(device_->end_capture().empty());
    device_->violations.clear();
    EBB_EXPECT_REFUSED(ebb_runtime_close(runtime_, 0), EBB_BUSY, "are live");
    EBB_EXPECT_OK(ebb_runtime_close(std::exchange(runtime_, nullptr), EBB_CLOSE_FORCE));
    for (const tensor &t : tensors_) {
        EXPECT_EQ(t.deleted, 3);
    }
}

TEST_F(captures, one_that_is_open_has_no_graph_to_release) {
    open_with_three();
    eager_steps(2);
    const graph_device::graph step = captured([&] {
        forward();
        EXPECT_EQ(stats().graphs, 1U);
        EBB_EXPECT_REFUSED(ebb_runtime_close(runtime_, 0), EBB_BUSY, "are live");
        backward();
        EBB_EXPECT_REFUSED(ebb_runtime_close(runtime_, 0), EBB_BUSY, "not released");
    });
    replay({&step}, 2);
}

TEST_F(captures, one_without_a_join_ends_at_an_evaluation_too) {
    options_.source_bytes = k_automatic;
    options_.device_budget_bytes = 32ULL << 20U;
    open_with_three();
    eager_steps(2);
    device_->begin_capture(stream_id{compute_});
    forward();
    EXPECT_TRUE(device_->end_capture().empty());
    device_->violations.clear();
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_EVALUATE));
    EXPECT_EQ(stats().graphs, 0U);
    for (const tensor &t : tensors_) {
        EBB_EXPECT_OK(ebb_release(runtime_, t.activation));
    }
    EBB_EXPECT_OK(ebb_runtime_close(std::exchange(runtime_, nullptr), 0));
}

// What was held outside for a collective goes when that is over, wherever its end is.
TEST_F(captures, a_collective_from_outside_that_ends_in_a_capture_lets_the_copies_go) {
    options_.source_bytes = k_automatic;
    options_.device_budget_bytes = 32ULL << 20U;
    open_with_three();
    eager_steps(2);
    const uint64_t copied = stats().d2h_bytes;
    EBB_EXPECT_OK(ebb_collective_begin(runtime_, compute_, 0));
    next_input();
    forward();
    EXPECT_EQ(stats().d2h_bytes, copied);
    const graph_device::graph end = captured([&] { EBB_EXPECT_OK(ebb_collective_end(runtime_, compute_)); });
    EXPECT_EQ(stats().d2h_bytes - copied, 4 * k_tensor_bytes);
    EXPECT_TRUE(end.empty());
    backward();
    synchronize();
    EXPECT_THAT(wrong_, ::testing::IsEmpty());
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

TEST_F(captures, a_kept_source_from_outside_is_neither_read_in_a_capture_nor_freed_before_it_is_written) {
    options_.staging_bytes = 16 * k_tensor_bytes;
    options_.max_activation_bytes = 2 * k_tensor_bytes;
    options_.policy = "keep";
    open_with_three();
    eager_steps(1);
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
    ebb_reload_info back = zeroed<ebb_reload_info>();
    EBB_EXPECT_REFUSED(ebb_reload(runtime_, info_.activation, compute_, &back), EBB_WRONG_STATE,
                       "'t1' is still being copied outside of this capture");
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
