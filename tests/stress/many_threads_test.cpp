// Several threads on one runtime, and on two at once, each with its own stream and its own mixture of calls. What
// comes back is compared byte for byte, and at the end nothing is held. Meant for ThreadSanitizer above all: its
// threads are the streams' too, so an edge that is missing between a copy and a kernel is a race that it sees.

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "capi/dlpack_abi.hpp"
#include "ebb/ebb.h"
#include "training_rig.hpp"

namespace ebb::test {
namespace {

constexpr uint64_t k_largest = 32 * 1024;
constexpr int k_iterations = 150;
constexpr size_t k_in_flight = 6;

// Deletes tensors on a thread of its own, whenever it comes to it.
class collector {
public:
    collector() : thread_([this] { run(); }) {}
    ~collector() { finish(); }
    void take(DLManagedTensorVersioned *tensor) {
        const std::lock_guard lock(mutex_);
        tensors_.push_back(tensor);
        changed_.notify_one();
    }
    void finish() {
        {
            const std::lock_guard lock(mutex_);
            over_ = true;
            changed_.notify_one();
        }
        if (thread_.joinable()) {
            thread_.join();
        }
    }

private:
    void run() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [this] { return over_ || !tensors_.empty(); });
            if (tensors_.empty()) {
                return;
            }
            DLManagedTensorVersioned *tensor = tensors_.front();
            tensors_.pop_front();
            lock.unlock();
            tensor->deleter(tensor);
            lock.lock();
        }
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<DLManagedTensorVersioned *> tensors_;
    bool over_ = false;
    std::thread thread_;
};

// One thread's training, on one stream. Its memory comes from a pool that is the stream's: what a deleter gives back is
// written again behind the stream's point, so only Ebb's waits protect what still reads it.
class worker {
public:
    worker(ebb_runtime *runtime, int number, collector &tensors)
        : runtime_(runtime), number_(number), tensors_(tensors) {
        EBB_EXPECT_OK(ebb_host_stream_create(runtime_, &stream_));
    }

    void run() {
        EBB_ASSERT_OK(ebb_scope_push(runtime_, ("worker." + std::to_string(number_)).c_str()));
        for (int i = 0; i < k_iterations; ++i) {
            save(i);
            if (live_.size() > k_in_flight) {
                end_one(i);
            }
        }
        while (!live_.empty()) {
            end_one(k_iterations);
        }
        EBB_ASSERT_OK(ebb_scope_pop(runtime_));
        EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, stream_));
    }

    void expect_all_right() {
        EXPECT_EQ(wrong_, 0);
        EXPECT_EQ(deleted_, k_iterations);
        EXPECT_GT(compared_, k_iterations / 2);
    }

private:
    struct source {
        worker *owner;
        void *data;
    };
    struct saved {
        ebb_activation activation;
        uint64_t size_bytes;
        uint64_t seed;
    };
    struct task {
        worker *owner;
        void *data;
        uint64_t size_bytes;
        uint64_t seed;
    };

    void *take_memory() {
        {
            const std::lock_guard lock(pool_mutex_);
            if (!pool_.empty()) {
                void *data = pool_.back();
                pool_.pop_back();
                return data;
            }
        }
        void *data = nullptr;
        EBB_EXPECT_OK(ebb_host_alloc(runtime_, k_largest, &data));
        return data;
    }
    void give_memory(void *data) {
        const std::lock_guard lock(pool_mutex_);
        pool_.push_back(data);
    }

    void launch(void (*function)(void *), const task &t) {
        tasks_.push_back(t);
        EBB_ASSERT_OK(ebb_host_launch(runtime_, stream_, function, &tasks_.back()));
    }
    static void fill(void *argument) {
        auto *t = static_cast<task *>(argument);
        fill_pattern(t->data, t->size_bytes, t->seed);
    }
    static void compare(void *argument) {
        auto *t = static_cast<task *>(argument);
        t->owner->compare_now(t->data, t->size_bytes, t->seed);
    }
    void compare_now(const void *data, uint64_t size_bytes, uint64_t seed) {
        wrong_ += has_pattern(data, size_bytes, seed) ? 0 : 1;
        ++compared_;
    }
    static void deleter(void *context) {
        auto *s = static_cast<source *>(context);
        ++s->owner->deleted_;
        s->owner->give_memory(s->data);
        if (s->owner->deleted_ % 7 == 0) {
            EBB_EXPECT_OK(ebb_progress(s->owner->runtime_));
        }
    }

    void save(int i) {
        source &s = sources_.emplace_back(source{this, take_memory()});
        const uint64_t seed = static_cast<uint64_t>(number_ * 1000 + i);
        const uint64_t size_bytes = 1000 + static_cast<uint64_t>(i * 7919 + number_ * 104729) % (k_largest - 1000);
        launch(fill, {this, s.data, size_bytes, seed});
        ebb_offload_args args{};
        args.struct_size = sizeof(args);
        args.name = i % 3 == 0 ? "gate" : "up";
        args.data = s.data;
        args.size_bytes = size_bytes;
        args.producers = &stream_;
        args.producer_count = 1;
        args.deleter = deleter;
        args.deleter_context = &s;
        args.placement = i % 11 == 0 ? EBB_PLACE_KEEP : EBB_PLACE_BY_POLICY;
        ebb_offload_info info{};
        info.struct_size = sizeof(info);
        EBB_ASSERT_OK(ebb_offload(runtime_, &args, &info));
        live_.push_back({info.activation, size_bytes, seed});
    }

    void end_one(int i) {
        const bool youngest = i % 2 == 0;
        const saved s = youngest ? live_.back() : live_.front();
        youngest ? live_.pop_back() : live_.pop_front();
        switch (i % 5) {
            case 0:
                read_as_tensor(s);
                EBB_ASSERT_OK(ebb_drop(runtime_, s.activation));
                break;
            case 1:
                read_on_thread(s);
                EBB_ASSERT_OK(ebb_release(runtime_, s.activation));
                break;
            case 2:
                read_into_own(s);
                EBB_ASSERT_OK(ebb_release(runtime_, s.activation));
                break;
            case 3:
                read(s);
                EBB_ASSERT_OK(ebb_drop(runtime_, s.activation));
                break;
            default:
                read(s);
                read(s);
                EBB_ASSERT_OK(ebb_release(runtime_, s.activation));
                break;
        }
    }

    void read(const saved &s) {
        ebb_reload_info info{};
        info.struct_size = sizeof(info);
        const ebb_status status = ebb_reload(runtime_, s.activation, stream_, &info);
        if (status == EBB_NO_SLOT) {
            read_into_own(s);
            return;
        }
        ASSERT_EQ(status, EBB_OK) << ebb_last_error();
        launch(compare, {this, info.data, s.size_bytes, s.seed});
        EBB_ASSERT_OK(ebb_return(runtime_, info.claim, stream_));
    }
    void read_into_own(const saved &s) {
        void *own = take_memory();
        EBB_ASSERT_OK(ebb_reload_into(runtime_, s.activation, own, s.size_bytes, stream_));
        launch(compare, {this, own, s.size_bytes, s.seed});
        give_memory(own);
    }
    void read_as_tensor(const saved &s) {
        DLManagedTensorVersioned *tensor = nullptr;
        const ebb_status status = ebb_reload_dlpack(runtime_, s.activation, stream_, &tensor);
        if (status == EBB_NO_SLOT) {
            read_into_own(s);
            return;
        }
        ASSERT_EQ(status, EBB_OK) << ebb_last_error();
        launch(compare, {this, tensor->tensor.data, s.size_bytes, s.seed});
        tensors_.take(tensor);
    }
    void read_on_thread(const saved &s) {
        ebb_reload_info info{};
        info.struct_size = sizeof(info);
        const ebb_status status = ebb_reload(runtime_, s.activation, EBB_STREAM_CALLING_THREAD, &info);
        if (status == EBB_NO_SLOT) {
            read_into_own(s);
            return;
        }
        ASSERT_EQ(status, EBB_OK) << ebb_last_error();
        EBB_ASSERT_OK(ebb_wait(runtime_, s.activation));
        compare_now(info.data, s.size_bytes, s.seed);
        EBB_ASSERT_OK(ebb_return(runtime_, info.claim, EBB_STREAM_CALLING_THREAD));
    }

    ebb_runtime *runtime_;
    int number_;
    collector &tensors_;
    ebb_stream stream_ = 0;
    std::mutex pool_mutex_;
    std::vector<void *> pool_;
    std::deque<source> sources_;
    std::deque<task> tasks_;
    std::deque<saved> live_;
    std::atomic<int> wrong_{0}, compared_{0}, deleted_{0};
};

ebb_runtime *open(bool verify) {
    ebb_runtime_options o{};
    o.struct_size = sizeof(o);
    o.device = "host";
    o.host_device_bytes = 64 << 20;
    o.min_offload_bytes = 1;
    o.device_budget_bytes = 16 * k_largest;
    o.staging_bytes = 6 * k_largest;
    o.chunk_bytes = 8192;
    o.verify = verify ? EBB_ON : EBB_OFF;
    ebb_runtime *made = nullptr;
    EBB_EXPECT_OK(ebb_runtime_create(&o, &made));
    return made;
}

// What else may happen at any time.
void watch(ebb_runtime *runtime, const std::atomic<bool> &over, bool steps) {
    for (int i = 0; !over; ++i) {
        ebb_statistics s{};
        s.struct_size = sizeof(s);
        EBB_EXPECT_OK(ebb_stats(runtime, &s));
        EXPECT_LE(s.staging_peak_bytes, 6 * k_largest);
        EBB_EXPECT_OK(ebb_progress(runtime));
        EBB_EXPECT_OK(ebb_wait_room(runtime));
        if (i % 8 == 0) {
            uint64_t size = 0;
            EBB_EXPECT_OK(ebb_report_write(
                runtime, i % 16 == 0 ? EBB_REPORT_JSON : EBB_REPORT_TEXT,
                [](void *to, const char *, uint64_t size_bytes) { *static_cast<uint64_t *>(to) += size_bytes; },
                &size));
            EXPECT_GT(size, 0U);
        }
        if (steps && i % 16 == 4) {
            EBB_EXPECT_OK(ebb_step(runtime, i % 64 == 4 ? EBB_PHASE_EVALUATE : EBB_PHASE_TRAIN));
        }
        std::this_thread::yield();
    }
}

void expect_baseline(ebb_runtime *runtime) {
    EBB_EXPECT_OK(ebb_step(runtime, EBB_PHASE_EVALUATE));
    ebb_statistics s{};
    s.struct_size = sizeof(s);
    EBB_EXPECT_OK(ebb_stats(runtime, &s));
    EXPECT_EQ(s.live_activations, 0U);
    EXPECT_EQ(s.kept_bytes, 0U);
    EXPECT_EQ(s.source_bytes, 0U);
    EXPECT_EQ(s.staging_used_bytes, 0U);
    EXPECT_EQ(s.pinned_used_bytes, 0U);
    EXPECT_GT(s.offloaded_count, 0U);
    EXPECT_GT(s.reloads_prefetched + s.reloads_on_demand + s.forwarded_count, 0U);
}

void train(int runtimes, int workers_each, bool verify, bool steps) {
    std::vector<ebb_runtime *> opened;
    std::deque<worker> workers;
    collector tensors;
    std::atomic<bool> over{false};
    std::vector<std::thread> watchers;
    for (int r = 0; r < runtimes; ++r) {
        opened.push_back(open(verify));
        ASSERT_NE(opened.back(), nullptr);
        EBB_ASSERT_OK(ebb_step(opened.back(), EBB_PHASE_TRAIN));
        for (int w = 0; w < workers_each; ++w) {
            workers.emplace_back(opened.back(), r * workers_each + w, tensors);
        }
        watchers.emplace_back(watch, opened.back(), std::cref(over), steps);
    }
    std::vector<std::thread> threads;
    for (worker &w : workers) {
        threads.emplace_back([&w] { w.run(); });
    }
    for (std::thread &t : threads) {
        t.join();
    }
    over = true;
    for (std::thread &t : watchers) {
        t.join();
    }
    tensors.finish();
    for (ebb_runtime *runtime : opened) {
        expect_baseline(runtime);
        EBB_EXPECT_OK(ebb_runtime_close(runtime, EBB_CLOSE_DEFAULT));
    }
    for (worker &w : workers) {
        w.expect_all_right();
    }
}

TEST(many_threads, on_one_runtime) {
    train(1, 4, false, false);
}

TEST(many_threads, while_steps_begin_and_end) {
    train(1, 4, false, true);
}

TEST(many_threads, on_one_runtime_in_verify_mode) {
    train(1, 3, true, false);
}

TEST(many_threads, on_two_runtimes) {
    train(2, 3, false, true);
}

// Claims and tensors outlive the activations and, tensors, the runtime.
TEST(many_threads, tensors_are_deleted_while_the_runtime_closes) {
    for (int round = 0; round < 20; ++round) {
        ebb_runtime *runtime = open(false);
        ASSERT_NE(runtime, nullptr);
        std::vector<DLManagedTensorVersioned *> tensors;
        const ebb_stream stream = EBB_STREAM_DEFAULT;
        for (int i = 0; i < 5; ++i) {
            void *data = nullptr;
            EBB_ASSERT_OK(ebb_host_alloc(runtime, k_largest, &data));
            ebb_offload_args args{};
            args.struct_size = sizeof(args);
            args.name = "gate";
            args.data = data;
            args.size_bytes = k_largest;
            args.producers = &stream;
            args.producer_count = 1;
            ebb_offload_info info{};
            info.struct_size = sizeof(info);
            EBB_ASSERT_OK(ebb_offload(runtime, &args, &info));
            EBB_ASSERT_OK(ebb_reload_dlpack(runtime, info.activation, stream, &tensors.emplace_back()));
        }
        std::thread deleter([&tensors] {
            for (DLManagedTensorVersioned *tensor : tensors) {
                tensor->deleter(tensor);
            }
        });
        EBB_EXPECT_OK(ebb_runtime_close(runtime, EBB_CLOSE_FORCE));
        deleter.join();
    }
}

}  // namespace
}  // namespace ebb::test
