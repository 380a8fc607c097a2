// The calling thread as producer, consumer and home.

#include <chrono>
#include <cstring>
#include <future>

#include "capi_fixture.hpp"

namespace ebb::test {
namespace {

const ebb_stream k_thread = EBB_STREAM_CALLING_THREAD;

class calling_thread : public capi_test {
protected:
    ebb_offload_args thread_args(buffer &b, const char *name = "gate") {
        ebb_offload_args a = args_for(b, name);
        a.producers = &k_thread;
        return a;
    }
};

TEST_F(calling_thread, offloads_waits_and_reads) {
    open();
    buffer &b = make_buffer();
    const ebb_activation a = offload(thread_args(b));
    EBB_EXPECT_OK(ebb_wait_room(runtime_));
    EXPECT_EQ(b.deleted, 1);
    std::memset(b.data, 0xEE, k_size);
    const ebb_reload_info info = reload(a, k_thread);
    EBB_ASSERT_OK(ebb_wait(runtime_, a));
    EXPECT_TRUE(has_pattern(info.data, k_size, b.seed));
    EBB_EXPECT_OK(ebb_return(runtime_, info.claim, k_thread));
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    expect_nothing_held();
}

TEST_F(calling_thread, a_deleter_waits_for_the_copy_and_wait_room_blocks_for_it) {
    open();
    hold(copy_direction::d2h);
    buffer &b = make_buffer();
    offload(thread_args(b));
    ASSERT_TRUE(device_->fault().wait_until_held(copy_direction::d2h).ok());
    EXPECT_EQ(stats().source_bytes, 0U) << "given up";
    EBB_EXPECT_OK(ebb_progress(runtime_));
    EXPECT_EQ(b.deleted, 0) << "but its copy still reads it";
    std::thread waiter([&] {
        EBB_EXPECT_OK(ebb_wait_room(runtime_));
        EXPECT_EQ(b.deleted, 1);
    });
    EXPECT_EQ(b.deleted, 0);
    let_all_pass();
    waiter.join();
    EXPECT_EQ(b.deleted, 1);
}

// Says once or more that an event is not done though it is: as if the copy ended right after the question.
class answers_late_device : public device_decorator {
public:
    explicit answers_late_device(std::unique_ptr<host_device> host) : device_decorator(*host), host_(std::move(host)) {}
    host_device *host() { return host_.get(); }
    void answer_late(int times) { late_ = times; }
    result<bool> event_done(event_id event) override {
        result<bool> done = device_decorator::event_done(event);
        return late_.load() > 0 && late_-- > 0 ? result<bool>(false) : std::move(done);
    }

private:
    std::unique_ptr<host_device> host_;
    std::atomic<int> late_{0};
};

TEST_F(calling_thread, wait_room_runs_the_deleter_of_a_copy_that_ends_while_it_looks) {
    for (const int late : {1, 2, 3}) {
        auto dev = std::make_unique<answers_late_device>(std::make_unique<host_device>(host_options_));
        answers_late_device *device = dev.get();
        host_device *host = dev->host();
        result<ebb_runtime *> made = capi::make_runtime(std::move(dev), host, options_, logger(), nullptr);
        ASSERT_TRUE(made.ok()) << made.why().text();
        runtime_ = made.value();
        buffer &b = make_buffer();
        device->answer_late(1 << 20);  // that the copy is done is news until wait_room asks
        offload(thread_args(b));
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        device->answer_late(late);
        EBB_EXPECT_OK(ebb_wait_room(runtime_));
        EXPECT_EQ(b.deleted, 1) << late;
        close();
    }
}

// Two parts of one copy: the second reload, which is there already, must not make the wait forget the first.
TEST_F(calling_thread, waits_for_every_reload_of_bytes_that_are_shared) {
    options_.staging_bytes = 2 * k_size;
    open();
    buffer &whole = make_buffer();
    ebb_offload_args args = thread_args(whole, "whole");
    args.storage_id = 7;
    const ebb_activation parent = offload(args);
    args.size_bytes = k_size / 2;
    args.deleter = nullptr;
    args.name = "part";
    const ebb_activation part = offload(args);
    buffer &slow = make_buffer();
    const ebb_activation before = offload(thread_args(slow, "before"));
    EBB_EXPECT_OK(ebb_wait_room(runtime_));
    const ebb_reload_info resident = reload(parent, compute_);
    device_->wait_for_our_streams();

    hold(copy_direction::h2d);
    static_cast<void>(reload(before, compute_));  // the lane stands
    void *own = nullptr;
    EBB_ASSERT_OK(ebb_host_alloc(runtime_, k_size / 2, &own));
    std::memset(own, 0, k_size / 2);
    EBB_ASSERT_OK(ebb_reload_into(runtime_, part, own, k_size / 2, k_thread));
    const ebb_reload_info again = reload(parent, k_thread);
    std::thread waiter([&] {
        EBB_EXPECT_OK(ebb_wait(runtime_, part));
        EXPECT_EQ(std::memcmp(own, again.data, k_size / 2), 0);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // gives a wait that is none time to be wrong
    let_all_pass();
    waiter.join();
    EBB_EXPECT_OK(ebb_return(runtime_, resident.claim, compute_));
}

// The thread at home is not ordered behind the stream that produces: verify's first sum must not be taken too early.
TEST_F(calling_thread, verify_as_home_of_what_a_stream_still_produces) {
    options_.verify = true;
    open();
    buffer &b = make_buffer();
    std::memset(b.data, 0, k_size);
    struct late {
        std::promise<void> go;
        buffer *of;
    } produced{{}, &b};
    EBB_ASSERT_OK(ebb_host_launch(
        runtime_, compute_,
        [](void *argument) {
            auto *p = static_cast<late *>(argument);
            p->go.get_future().wait();
            fill_pattern(p->of->data, k_size, p->of->seed);
        },
        &produced));
    ebb_offload_args args = args_for(b);
    args.home = &k_thread;
    const ebb_activation a = offload(args);
    produced.go.set_value();
    EBB_EXPECT_OK(ebb_wait_room(runtime_));
    EBB_EXPECT_OK(ebb_progress(runtime_));
    reload_and_return(a, b);
    device_->wait_for_our_streams();
    EBB_EXPECT_OK(ebb_progress(runtime_));
}

TEST_F(calling_thread, other_calls_are_served_while_one_waits) {
    open();
    hold(copy_direction::d2h);
    buffer &b = make_buffer();
    offload(thread_args(b));
    std::thread waiter([&] { EBB_EXPECT_OK(ebb_wait_room(runtime_)); });
    ASSERT_TRUE(device_->fault().wait_until_held(copy_direction::d2h).ok());
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(stats().live_activations, 1U);
    }
    let_all_pass();
    waiter.join();
}

TEST_F(calling_thread, a_deleter_that_is_due_runs_in_a_later_call_on_any_thread) {
    open();
    buffer &b = make_buffer();
    const ebb_activation a = offload(thread_args(b));
    EBB_ASSERT_OK(ebb_release(runtime_, a));
    device_->wait_for_our_streams();
    std::thread::id ran_on;
    b.in_deleter = [&] { ran_on = std::this_thread::get_id(); };
    if (b.deleted == 0) {
        std::thread other([&] { EBB_EXPECT_OK(ebb_progress(runtime_)); });
        const std::thread::id id = other.get_id();
        other.join();
        EXPECT_EQ(ran_on, id);
    }
    EXPECT_EQ(b.deleted, 1);
}

TEST_F(calling_thread, as_home_of_what_a_stream_produced) {
    open();
    buffer &b = make_buffer();
    ebb_offload_args args = args_for(b);
    args.home = &k_thread;
    std::memset(b.data, 0, k_size);
    EBB_ASSERT_OK(ebb_host_launch(
        runtime_, compute_,
        [](void *argument) {
            auto *x = static_cast<buffer *>(argument);
            fill_pattern(x->data, k_size, x->seed);
        },
        &b));
    const ebb_activation a = offload(args);
    EBB_ASSERT_OK(ebb_wait_room(runtime_));
    EXPECT_EQ(b.deleted, 1);
    std::memset(b.data, 0xEE, k_size);
    reload_and_return(a, b);
}

// Each waits for the same point, and none of them may keep the others from learning that it is done.
TEST_F(calling_thread, many_threads_wait_for_one_reload) {
    open();
    buffer &b = make_buffer();
    const ebb_activation a = offload(b);
    hold(copy_direction::h2d);
    const ebb_reload_info info = reload(a, k_thread);
    std::vector<std::thread> waiters;
    for (int i = 0; i < 8; ++i) {
        waiters.emplace_back([&] {
            EBB_EXPECT_OK(ebb_wait(runtime_, a));
            EXPECT_TRUE(has_pattern(info.data, k_size, b.seed));
        });
    }
    ASSERT_TRUE(device_->fault().wait_until_held(copy_direction::h2d).ok());
    let_all_pass();
    for (std::thread &t : waiters) {
        t.join();
    }
    EBB_EXPECT_OK(ebb_return(runtime_, info.claim, k_thread));
}

// A source that is handed back, or kept: the thread must not read before its producer is done.
TEST_F(calling_thread, waits_for_the_producer_of_a_kept_source) {
    open();
    buffer &b = make_buffer();
    std::memset(b.data, 0, k_size);
    std::atomic<bool> go{false};
    struct writing {
        buffer *b;
        std::atomic<bool> *go;
    } w{&b, &go};
    EBB_ASSERT_OK(ebb_host_launch(
        runtime_, compute_,
        [](void *argument) {
            auto *x = static_cast<writing *>(argument);
            while (!*x->go) {
                std::this_thread::yield();
            }
            fill_pattern(x->b->data, k_size, x->b->seed);
        },
        &w));
    ebb_offload_args args = args_for(b);
    args.placement = EBB_PLACE_KEEP;
    const ebb_activation a = offload(args);
    const ebb_reload_info info = reload(a, k_thread);
    EXPECT_EQ(info.data, b.data);
    std::thread([&] { go = true; }).detach();
    EBB_ASSERT_OK(ebb_wait(runtime_, a));
    EXPECT_TRUE(has_pattern(info.data, k_size, b.seed));
    EBB_EXPECT_OK(ebb_return(runtime_, info.claim, k_thread));
}

TEST_F(calling_thread, a_device_that_breaks_while_it_waits_ends_the_wait) {
    open();
    buffer &b = make_buffer();
    const ebb_activation a = offload(thread_args(b));
    EBB_ASSERT_OK(ebb_wait_room(runtime_));
    void *own = nullptr;
    EBB_ASSERT_OK(ebb_host_alloc(runtime_, k_size, &own));
    hold(copy_direction::h2d);
    EBB_ASSERT_OK(ebb_reload_into(runtime_, a, own, k_size, k_thread));
    device_->fault().break_after(0);
    EBB_EXPECT_STATUS(ebb_wait(runtime_, a), EBB_DEVICE_ERROR);
    device_->fault().clear();
    let_all_pass();
    EBB_EXPECT_OK(ebb_progress(runtime_));  // it was told once
    EBB_EXPECT_OK(ebb_wait(runtime_, a));
    EXPECT_TRUE(has_pattern(own, k_size, b.seed));
}

}  // namespace
}  // namespace ebb::test
