// Captures: steps whose calls become part of a graph, launched again and again with new inputs, on a device that knows
// CUDA's rules and runs a graph in every order that its dependences allow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "capi_fixture.hpp"
#include "graph_device.hpp"

namespace ebb::test {
namespace {

constexpr uint64_t k_tensor_bytes = 24 * 1024;

// One activation of the step, saved in forward and read in backward.
struct tensor {
    std::string name;
    uint64_t size_bytes = 0;
    uint64_t number = 0;
    void *source = nullptr;
    int deleted = 0;
    ebb_activation activation = 0;
};

class captures : public ::testing::Test {
protected:
    // What a kernel reads: where, how much, which input, and where it counts what was wrong.
    struct kernel {
        captures *owner;
        void *data;
        uint64_t size_bytes;
        uint64_t number;
    };

    void SetUp() override {
        options_.min_offload_bytes = 1;
        options_.policy = "offload";
        options_.source_bytes = k_none_bytes;
        host_options_.capacity_bytes = 64ULL << 20U;
    }
    void TearDown() override {
        if (runtime_ != nullptr) {
            EXPECT_THAT(device_->violations, ::testing::IsEmpty());
            EBB_EXPECT_OK(ebb_runtime_close(std::exchange(runtime_, nullptr), EBB_CLOSE_FORCE));
        }
    }

    void open(const ebb_allocator *allocator = nullptr) {
        auto dev = std::make_unique<graph_device>(host_options_);
        device_ = dev.get();
        host_device *host = &dev->host();
        options_.lent_allocator = allocator != nullptr;
        result<ebb_runtime *> made = capi::make_runtime(std::move(dev), host, options_,
                                                        logger(log_line, &log_lines_, log_level::warning), allocator);
        ASSERT_TRUE(made.ok()) << made.why().text();
        runtime_ = made.value();
        EBB_ASSERT_OK(ebb_host_stream_create(runtime_, &compute_));
        EBB_ASSERT_OK(ebb_host_stream_create(runtime_, &other_));
    }
    void make_tensors(const std::vector<uint64_t> &sizes) {
        for (const uint64_t size_bytes : sizes) {
            tensor &t = tensors_.emplace_back();
            t.number = tensors_.size();
            t.name = "t" + std::to_string(t.number);
            t.size_bytes = size_bytes;
            EBB_ASSERT_OK(ebb_host_alloc(runtime_, size_bytes, &t.source));
        }
    }
    void open_with_three() {
        open();
        make_tensors({k_tensor_bytes, 2 * k_tensor_bytes, k_tensor_bytes});
    }

    void launch(void (*function)(void *), const kernel &k) {
        ASSERT_TRUE(device_->launch(stream_id{compute_}, function, &kernels_.emplace_back(k)).ok());
    }
    void produce(tensor &t) {
        launch(
            [](void *argument) {
                const auto *k = static_cast<kernel *>(argument);
                fill_pattern(k->data, k->size_bytes, k->owner->input_ * 1000 + k->number);
            },
            {this, t.source, t.size_bytes, t.number});
    }
    void consume(void *data, const tensor &t) {
        launch(
            [](void *argument) {
                const auto *k = static_cast<kernel *>(argument);
                ++k->owner->consumed_;
                if (!has_pattern(k->data, k->size_bytes, k->owner->input_ * 1000 + k->number)) {
                    k->owner->wrong_.push_back(k->number);
                }
            },
            {this, data, t.size_bytes, t.number});
    }
    // The framework uses the memory again, as it may from here on, behind the home stream.
    static void deleter(void *context) {
        auto *given_up = static_cast<kernel *>(context);
        ++given_up->owner->tensors_[given_up->number - 1].deleted;
        given_up->owner->launch(
            [](void *argument) {
                const auto *k = static_cast<kernel *>(argument);
                std::memset(k->data, 0xEE, k->size_bytes);
            },
            *given_up);
    }

    ebb_offload_args args_for(tensor &t) {
        ebb_offload_args a = zeroed<ebb_offload_args>();
        a.name = t.name.c_str();
        a.data = t.source;
        a.size_bytes = t.size_bytes;
        a.producers = &compute_;
        a.producer_count = 1;
        a.deleter = deleter;
        a.deleter_context = &kernels_.emplace_back(kernel{this, t.source, t.size_bytes, t.number});
        return a;
    }
    void forward() {
        for (tensor &t : tensors_) {
            produce(t);
            const ebb_offload_args a = args_for(t);
            EBB_ASSERT_OK(ebb_offload(runtime_, &a, &info_));
            t.activation = info_.activation;
        }
    }
    void backward(bool release = true) {
        for (size_t i = tensors_.size(); i-- > 0;) {
            tensor &t = tensors_[i];
            ebb_reload_info back = zeroed<ebb_reload_info>();
            EBB_ASSERT_OK(ebb_reload(runtime_, t.activation, compute_, &back));
            consume(back.data, t);
            EBB_ASSERT_OK(ebb_return(runtime_, back.claim, compute_));
            if (release) {
                EBB_ASSERT_OK(ebb_release(runtime_, t.activation));
            }
        }
    }
    void eager_steps(int count) {
        for (int step = 0; step < count; ++step) {
            EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
            ++input_;
            forward();
            backward();
            synchronize();
        }
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        EBB_ASSERT_OK(ebb_progress(runtime_));
    }
    template <class Body>
    graph_device::graph captured(Body &&body) {
        synchronize();
        device_->begin_capture(stream_id{compute_});
        body();
        EBB_EXPECT_OK(ebb_graph_join(runtime_, compute_, &graph_));
        return device_->end_capture();
    }
    void replay(const std::vector<const graph_device::graph *> &graphs, int times = 100) {
        const uint64_t each = consumed_;
        for (int launch = 0; launch < times; ++launch) {
            ++input_;
            for (const graph_device::graph *g : graphs) {
                device_->launch_graph(*g, stream_id{compute_}, random_);
            }
            synchronize();
        }
        EXPECT_EQ(consumed_ - each, static_cast<uint64_t>(times) * tensors_.size());
        EXPECT_THAT(wrong_, ::testing::IsEmpty());
    }
    void synchronize() { EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, compute_)); }
    ebb_statistics stats() {
        ebb_statistics s = zeroed<ebb_statistics>();
        EBB_EXPECT_OK(ebb_stats(runtime_, &s));
        return s;
    }
    std::string record() {
        std::string text;
        EBB_EXPECT_OK(ebb_record_export(
            runtime_,
            [](void *to, const char *piece, uint64_t size) { static_cast<std::string *>(to)->append(piece, size); },
            &text));
        return text;
    }

    runtime_options options_;
    host_device_options host_options_;
    graph_device *device_ = nullptr;
    ebb_runtime *runtime_ = nullptr;
    ebb_stream compute_ = 0, other_ = 0;
    ebb_offload_info info_ = zeroed<ebb_offload_info>();
    std::deque<tensor> tensors_;
    std::deque<kernel> kernels_;
    std::vector<void *> own_;
    ebb_graph graph_ = 0;
    uint64_t input_ = 0;
    uint64_t consumed_ = 0;
    std::vector<uint64_t> wrong_;
    std::mt19937_64 random_{7};
    std::vector<std::string> log_lines_;

private:
    static void log_line(void *context, log_level, const char *line) {
        static_cast<std::vector<std::string> *>(context)->emplace_back(line);
    }
};

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
