// A step of tensors that are saved and read back, run eagerly or captured into graphs, with kernels that write what
// follows from the input and check what they read.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "graph_device.hpp"
#include "training_rig.hpp"

namespace ebb::test {

template <class Struct>
Struct sized() {
    Struct s{};
    s.struct_size = sizeof(s);
    return s;
}

constexpr uint64_t k_tensor_bytes = 24 * 1024;

// One activation of the step, saved in forward and read in backward.
struct tensor {
    std::string name;
    uint64_t size_bytes = 0;
    uint64_t number = 0;
    void *source = nullptr;
    void *own = nullptr;  // where it is read when there is no slot
    int deleted = 0;
    ebb_activation activation = 0;
};

class capture_rig : public ::testing::Test {
protected:
    // What a kernel reads: where, how much, which input, and where it counts what was wrong.
    struct kernel {
        capture_rig *owner;
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

    // Kernels read the input when they run: none may be under way when it changes.
    uint64_t use_input(uint64_t input) {
        synchronize();
        return std::exchange(input_, input);
    }
    void next_input() { static_cast<void>(use_input(input_ + 1)); }

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

    // For where nothing can be enqueued.
    static void count_deleted(void *context) {
        const auto *given_up = static_cast<kernel *>(context);
        ++given_up->owner->tensors_[given_up->number - 1].deleted;
    }

    ebb_offload_args args_for(tensor &t) {
        ebb_offload_args a = sized<ebb_offload_args>();
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
            save(t);
        }
    }
    void save(tensor &t) {
        produce(t);
        const ebb_offload_args a = args_for(t);
        EBB_ASSERT_OK(ebb_offload(runtime_, &a, &info_));
        t.activation = info_.activation;
    }
    void backward(bool release = true) {
        for (size_t i = tensors_.size(); i-- > 0;) {
            read_back(tensors_[i], release);
        }
    }
    void read_back(tensor &t, bool release) {
        ebb_reload_info back = sized<ebb_reload_info>();
        const ebb_status reloaded = ebb_reload(runtime_, t.activation, compute_, &back);
        if (reloaded == EBB_NO_SLOT && t.own != nullptr) {
            EBB_ASSERT_OK(ebb_reload_into(runtime_, t.activation, t.own, t.size_bytes, compute_));
            consume(t.own, t);
        } else {
            ASSERT_EQ(reloaded, EBB_OK) << ebb_last_error();
            consume(back.data, t);
            EBB_ASSERT_OK(ebb_return(runtime_, back.claim, compute_));
        }
        if (release) {
            EBB_ASSERT_OK(ebb_release(runtime_, t.activation));
        }
    }
    void eager_steps(int count) {
        for (int step = 0; step < count; ++step) {
            EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
            next_input();
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
            next_input();
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
        ebb_statistics s = sized<ebb_statistics>();
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
    ebb_offload_info info_ = sized<ebb_offload_info>();
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
    static void log_line(void *context, int32_t, const char *line) {
        static_cast<std::vector<std::string> *>(context)->emplace_back(line);
    }
};

}  // namespace ebb::test
