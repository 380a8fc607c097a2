// Staging on the caller's memory: an allocator with the shape of a stream-ordered pool, or one block.

#include <chrono>
#include <cstdlib>
#include <future>
#include <map>
#include <mutex>

#include "capi_fixture.hpp"
#include "stream_order.hpp"

namespace ebb::test {
namespace {

// Memory from the host device's arena; every call is noted and calls Ebb back.
struct lent_pool {
    struct piece {
        uint64_t size_bytes;
        ebb_stream home;
    };
    ebb_runtime *runtime = nullptr;
    uint64_t cap_bytes = ~uint64_t{0};
    uint64_t shift_bytes = 0;  // wrong alignment, when a test says so
    std::mutex mutex;
    std::map<void *, piece> out;
    uint64_t out_bytes = 0, peak_bytes = 0;
    int allocs = 0, refused = 0, frees = 0, wrong_frees = 0;
    uint64_t last_alignment = 0;
    uint64_t available = 0;  // what available_bytes says
    int asked = 0;           // how often it was asked
    std::function<void()> in_available;
    std::function<void()> in_alloc;  // runs in the next one

    ebb_allocator interface() { return {alloc, free, nullptr, this}; }
    ebb_allocator interface_that_says_what_is_free() { return {alloc, free, available_bytes, this}; }

    void call_back() {
        // Not while a lock of Ebb's is held: this would never return.
        ebb_statistics s = zeroed<ebb_statistics>();
        if (runtime != nullptr) {
            EBB_EXPECT_OK(ebb_stats(runtime, &s));
        }
    }
    static void *alloc(void *context, uint64_t size_bytes, uint64_t alignment, ebb_stream home) {
        auto *p = static_cast<lent_pool *>(context);
        p->call_back();
        if (const auto also = std::exchange(p->in_alloc, nullptr)) {
            also();
        }
        const std::lock_guard lock(p->mutex);
        p->last_alignment = alignment;
        ++p->allocs;
        if (p->out_bytes + size_bytes > p->cap_bytes) {
            ++p->refused;
            return nullptr;
        }
        void *data = std::aligned_alloc(alignment, size_bytes + alignment);
        data = static_cast<char *>(data) + p->shift_bytes;
        p->out[data] = {size_bytes, home};
        p->out_bytes += size_bytes;
        p->peak_bytes = std::max(p->peak_bytes, p->out_bytes);
        return data;
    }
    static void free(void *context, void *data, uint64_t size_bytes, ebb_stream home) {
        auto *p = static_cast<lent_pool *>(context);
        p->call_back();
        const std::lock_guard lock(p->mutex);
        ++p->frees;
        const auto found = p->out.find(data);
        if (found == p->out.end() || found->second.size_bytes != size_bytes || found->second.home != home) {
            ++p->wrong_frees;
            return;
        }
        p->out_bytes -= size_bytes;
        p->out.erase(found);
        p->retired.push_back(static_cast<char *>(data) - p->shift_bytes);  // streams may still be on their way to it
    }
    static uint64_t available_bytes(void *context) {
        auto *p = static_cast<lent_pool *>(context);
        ++p->asked;
        if (p->in_available) {
            p->in_available();
        }
        return p->available;
    }
    ~lent_pool() {
        for (void *data : retired) {
            std::free(data);
        }
    }
    std::vector<void *> retired;
};

class lent_allocator : public capi_test {
protected:
    void open_lent() {
        const ebb_allocator a = pool_.interface();
        open(&a);
        pool_.runtime = runtime_;
    }
    void TearDown() override {
        if (runtime_ != nullptr) {
            pool_.runtime = nullptr;
            close();
        }
        EXPECT_EQ(pool_.out.size(), 0U) << "everything is freed at close";
        EXPECT_EQ(pool_.wrong_frees, 0) << "each free has the allocation's size and home";
        EXPECT_EQ(pool_.frees, pool_.allocs - pool_.refused);
    }
    // One training step over `layers` saves, each read back and released.
    void run_step(int layers) {
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        std::vector<std::pair<ebb_activation, buffer *>> saved;
        for (int l = 0; l < layers; ++l) {
            buffer &b = make_buffer();
            saved.emplace_back(offload(b, ("layer" + std::to_string(l)).c_str()), &b);
        }
        while (!saved.empty()) {
            reload_and_return(saved.back().first, *saved.back().second);
            EBB_ASSERT_OK(ebb_release(runtime_, saved.back().first));
            EBB_ASSERT_OK(ebb_host_free(runtime_, saved.back().second->data));
            saved.pop_back();
        }
    }

    lent_pool pool_;
};

TEST_F(lent_allocator, is_asked_with_the_home_stream_and_alignment) {
    open_lent();
    buffer &b = make_buffer();
    ebb_offload_args args = args_for(b);
    args.home = &other_;
    const ebb_activation a = offload(args);
    EXPECT_EQ(pool_.allocs, 0);
    const ebb_reload_info info = reload(a);
    ASSERT_EQ(pool_.out.size(), 1U);
    EXPECT_EQ(pool_.out.begin()->first, info.data);
    EXPECT_EQ(pool_.out.begin()->second.home, other_);
    EXPECT_EQ(pool_.last_alignment, 512U);
    expect_bytes(info.data, b);
    EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
    EXPECT_EQ(pool_.out.size(), 0U);
    EXPECT_EQ(stats().staging_bytes, 0U);
}

TEST_F(lent_allocator, a_refusal_is_no_slot_and_own_memory_works) {
    pool_.cap_bytes = k_size;
    open_lent();
    buffer &b = make_buffer();
    buffer &c = make_buffer();
    const ebb_activation one = offload(b, "one");
    const ebb_activation two = offload(c, "two");
    const ebb_reload_info info = reload(one);
    ebb_reload_info none = zeroed<ebb_reload_info>();
    EBB_EXPECT_REFUSED(ebb_reload(runtime_, two, compute_, &none), EBB_NO_SLOT, "65536 bytes wanted");
    void *own = nullptr;
    EBB_ASSERT_OK(ebb_host_alloc(runtime_, k_size, &own));
    EBB_ASSERT_OK(ebb_reload_into(runtime_, two, own, k_size, compute_));
    expect_bytes(own, c);
    const ebb_offload_args staged = staged_args_for(c, "staged");
    EBB_EXPECT_STATUS(ebb_offload_staged(runtime_, &staged, &info_), EBB_NO_SLOT);
    EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
    EBB_EXPECT_OK(ebb_offload_staged(runtime_, &staged, &info_));
    reload_and_return(info_.activation, c);
    reload_and_return(two, c);
}

TEST_F(lent_allocator, unclaimed_prefetches_make_room_before_a_reload_is_refused) {
    options_.device_budget_bytes = 64 * k_size;
    open_lent();
    run_step(4);
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    std::vector<ebb_activation> saved;
    for (int l = 0; l < 4; ++l) {
        saved.push_back(offload(make_buffer(), ("layer" + std::to_string(l)).c_str()));
    }
    EXPECT_EQ(pool_.out.size(), 4U) << "all are prefetched";
    buffer &extra = make_buffer();
    const ebb_activation unknown = offload(extra, "unknown");
    pool_.cap_bytes = pool_.out_bytes;
    const ebb_reload_info info = reload(unknown);
    EXPECT_GE(pool_.refused, 1);
    EXPECT_GE(stats().prefetches_dropped, 1U);
    expect_bytes(info.data, extra);
    EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
    reload_and_return(saved[3], *(buffers_.end() - 2));  // what was dropped can be had again
}

TEST_F(lent_allocator, the_staging_cap_and_the_device_budget_are_kept) {
    options_.staging_bytes = 3 * k_size;
    options_.device_budget_bytes = 6 * k_size;
    open_lent();
    for (int step = 0; step < 4; ++step) {
        run_step(8);
    }
    EXPECT_LE(pool_.peak_bytes, 3 * k_size);
    EXPECT_LE(stats().device_peak_bytes, 6 * k_size);
    EXPECT_GT(stats().reloads_prefetched, 0U);
    // Claims alone cannot pass the cap either.
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_EVALUATE));
    std::vector<ebb_activation> saved;
    for (int i = 0; i < 4; ++i) {
        ebb_offload_args args = args_for(make_buffer(), "gate");
        args.placement = EBB_PLACE_OFFLOAD;  // the policy would keep it in evaluation, where it fits
        saved.push_back(offload(args));
    }
    for (size_t i = 0; i < 3; ++i) {
        static_cast<void>(reload(saved[i]));
    }
    ebb_reload_info none = zeroed<ebb_reload_info>();
    EBB_EXPECT_REFUSED(ebb_reload(runtime_, saved[3], compute_, &none), EBB_NO_SLOT, "196608 of 196608 held");
    EXPECT_LE(pool_.peak_bytes, 3 * k_size);
}

// It is asked with no lock held: what another thread asks for meanwhile comes on top.
TEST_F(lent_allocator, the_staging_cap_is_kept_while_another_thread_is_in_the_allocator) {
    options_.staging_bytes = k_size;
    open_lent();
    const ebb_activation one = offload(make_buffer(), "one");
    buffer &b = make_buffer();
    const ebb_activation two = offload(b, "two");
    ebb_status second = EBB_OK;
    pool_.in_alloc = [&] {
        std::thread([&] {
            ebb_reload_info none = zeroed<ebb_reload_info>();
            second = ebb_reload(runtime_, two, compute_, &none);
        }).join();
    };
    const ebb_reload_info info = reload(one);
    EXPECT_EQ(second, EBB_NO_SLOT);
    EXPECT_EQ(pool_.allocs, 1);
    EXPECT_EQ(pool_.peak_bytes, k_size);
    EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
    reload_and_return(two, b);
}

TEST_F(lent_allocator, a_refusal_leaves_the_whole_cap) {
    options_.staging_bytes = k_size;
    pool_.cap_bytes = 0;
    open_lent();
    buffer &b = make_buffer();
    const ebb_activation a = offload(b);
    ebb_reload_info none = zeroed<ebb_reload_info>();
    EBB_EXPECT_STATUS(ebb_reload(runtime_, a, compute_, &none), EBB_NO_SLOT);
    pool_.cap_bytes = k_size;
    reload_and_return(a, b);
}

TEST_F(lent_allocator, a_staged_offload_with_a_wrong_stream_does_not_ask) {
    open_lent();
    buffer &b = make_buffer();
    const ebb_stream wrong = 4711;
    ebb_offload_args args = staged_args_for(b);
    args.home = &wrong;
    EBB_EXPECT_REFUSED(ebb_offload_staged(runtime_, &args, &info_), EBB_INVALID_ARGUMENT, "home");
    args = staged_args_for(b);
    args.producers = &wrong;
    EBB_EXPECT_REFUSED(ebb_offload_staged(runtime_, &args, &info_), EBB_INVALID_ARGUMENT, "producers");
    EXPECT_EQ(pool_.allocs, 0);
}

TEST_F(lent_allocator, memory_that_is_not_aligned_is_given_back_and_named) {
    pool_.shift_bytes = 64;
    open_lent();
    const ebb_activation a = offload(make_buffer());
    ebb_reload_info none = zeroed<ebb_reload_info>();
    EBB_EXPECT_STATUS(ebb_reload(runtime_, a, compute_, &none), EBB_NO_SLOT);
    EBB_EXPECT_REFUSED(ebb_progress(runtime_), EBB_UNSUPPORTED, "options->allocator: alloc gave");
}

// The home is the calling thread: no stream can order the free, so it waits for the copy. Until then it counts.
TEST_F(lent_allocator, memory_whose_home_is_the_calling_thread_is_freed_once_its_copies_are_done) {
    options_.staging_bytes = k_size;
    open_lent();
    const ebb_stream thread = EBB_STREAM_CALLING_THREAD;
    buffer &b = make_buffer();
    ebb_offload_args args = args_for(b);
    args.home = &thread;
    const ebb_activation a = offload(args);
    EBB_ASSERT_OK(ebb_wait_room(runtime_));
    hold(copy_direction::h2d);
    const ebb_reload_info info = reload(a, thread);
    ASSERT_TRUE(device_->fault().wait_until_held(copy_direction::h2d).ok());
    EBB_EXPECT_OK(ebb_return(runtime_, info.claim, thread));
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EBB_EXPECT_OK(ebb_progress(runtime_));
    EXPECT_EQ(pool_.out.size(), 1U) << "a copy is still writing it";
    buffer &c = make_buffer();
    const ebb_activation next = offload(c);
    ebb_reload_info none = zeroed<ebb_reload_info>();
    EBB_EXPECT_STATUS(ebb_reload(runtime_, next, compute_, &none), EBB_NO_SLOT);
    let_all_pass();
    EBB_EXPECT_OK(ebb_wait_room(runtime_));
    EXPECT_EQ(pool_.out.size(), 0U);
    reload_and_return(next, c);
}

// Other work of the home stream may still use what the allocator gives out; what it takes back is used by others behind
// the home stream's point then.
TEST_F(lent_allocator, memory_is_used_behind_its_home_stream_and_freed_behind_its_readers) {
    open_lent();
    ebb_stream consumer = 0;
    EBB_ASSERT_OK(ebb_host_stream_create(runtime_, &consumer));
    std::promise<void> go;
    std::shared_future<void> gone = go.get_future().share();
    const auto stand = [&](ebb_stream stream) {
        EBB_EXPECT_OK(ebb_host_launch(
            runtime_, stream, [](void *future) { static_cast<std::shared_future<void> *>(future)->wait(); }, &gone));
    };
    const auto offload_at_other = [&](buffer &b, ebb_placement placement) {
        ebb_offload_args args = args_for(b);
        args.home = &other_;
        args.placement = placement;
        return offload(args);
    };
    buffer &b = make_buffer();
    const ebb_activation a = offload_at_other(b, EBB_PLACE_OFFLOAD);
    stand(other_);
    device_->clear();
    const ebb_reload_info info = reload(a, consumer);
    const stream_order filled(device_->entries());
    const size_t copy = filled.copies(copy_direction::h2d).at(0);
    const size_t home_then = filled.records().at(0);
    EXPECT_LT(home_then, copy);
    EXPECT_NE(filled[home_then].stream, filled[copy].stream);
    EXPECT_TRUE(filled.behind(copy, home_then));

    stand(consumer);
    EBB_EXPECT_OK(ebb_return(runtime_, info.claim, consumer));
    EXPECT_EQ(pool_.out.size(), 0U) << "freed for the host at once";
    const size_t last_use = stream_order(device_->entries()).records().back();
    ebb_offload_args next = args_for(make_buffer(), "next");
    next.producers = &other_;
    next.placement = EBB_PLACE_KEEP;
    const ebb_activation marked = offload(next);
    const stream_order freed(device_->entries());
    const size_t home_now = freed.records().back();
    EXPECT_EQ(freed[home_now].stream, freed[home_then].stream);
    EXPECT_TRUE(freed.behind(home_now, last_use));
    EXPECT_TRUE(freed.behind(home_now, copy));
    go.set_value();
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EBB_EXPECT_OK(ebb_release(runtime_, marked));
    EBB_EXPECT_OK(ebb_host_stream_synchronize(runtime_, consumer));
    EBB_EXPECT_OK(ebb_host_stream_synchronize(runtime_, other_));
}

TEST_F(lent_allocator, force_close_frees_what_claims_hold) {
    open_lent();
    static_cast<void>(reload(offload(make_buffer(), "one")));
    const ebb_activation two = offload(make_buffer(), "two");
    static_cast<void>(reload(two));
    EBB_EXPECT_OK(ebb_release(runtime_, two));
    EXPECT_EQ(pool_.out.size(), 2U);
}

// The device budget is learned from the first recorded step: what was held at its peak, plus what the allocator said
// was free then, less 5 % of the device's capacity.
class learned_budget : public lent_allocator {
protected:
    static constexpr uint64_t k_capacity_bytes = 64ULL << 20U;
    static constexpr uint64_t k_reserve_bytes = k_capacity_bytes / 20;

    void open_that_says_what_is_free() {
        const ebb_allocator a = pool_.interface_that_says_what_is_free();
        open(&a);
        pool_.runtime = runtime_;
        EXPECT_EQ(host_options_.capacity_bytes, k_capacity_bytes);
    }
    ebb_activation offload_as(ebb_placement placement, const char *name) {
        ebb_offload_args args = args_for(make_buffer(), name);
        args.placement = placement;
        return offload(args);
    }
    // A step that holds one, two, three units, and then two, one and two again. Says how often it was asked after each.
    std::vector<int> step_of_three_units(uint64_t free_at_peak) {
        std::vector<int> asked;
        const auto note = [&](uint64_t now_available) {
            asked.push_back(pool_.asked);
            pool_.available = now_available;
        };
        EBB_EXPECT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        note(900 * k_size);
        const ebb_activation kept = offload_as(EBB_PLACE_KEEP, "kept");
        note(800 * k_size);
        const ebb_activation one = offload_as(EBB_PLACE_OFFLOAD, "one");
        const ebb_activation two = offload_as(EBB_PLACE_OFFLOAD, "two");
        note(700 * k_size);
        const ebb_reload_info first = reload(one);
        note(free_at_peak);
        const ebb_reload_info second = reload(two);
        note(600 * k_size);
        EXPECT_EQ(stats().device_held_bytes, 3 * k_size);
        EBB_EXPECT_OK(ebb_return(runtime_, first.claim, compute_));
        EBB_EXPECT_OK(ebb_return(runtime_, second.claim, compute_));
        const ebb_reload_info again = reload(one);
        EBB_EXPECT_OK(ebb_return(runtime_, again.claim, compute_));
        for (const ebb_activation a : {kept, one, two}) {
            EBB_EXPECT_OK(ebb_release(runtime_, a));
        }
        note(500 * k_size);
        return asked;
    }
};

TEST_F(learned_budget, is_what_was_held_and_free_at_the_peak_less_a_reserve) {
    open_that_says_what_is_free();
    EXPECT_EQ(pool_.asked, 0);
    EXPECT_EQ(step_of_three_units(200 * k_size), (std::vector<int>{0, 1, 1, 2, 3, 3}))
        << "asked at each new peak, and at no other call";
    EXPECT_EQ(stats().device_budget_bytes, 0U) << "not known before the step is over";
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    EXPECT_EQ(stats().device_budget_bytes, 3 * k_size + 200 * k_size - k_reserve_bytes);
    // It is learned once.
    EXPECT_EQ(step_of_three_units(300 * k_size), std::vector<int>(6, 3));
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    EXPECT_EQ(stats().device_budget_bytes, 3 * k_size + 200 * k_size - k_reserve_bytes);
}

TEST_F(learned_budget, is_not_learned_outside_of_training_steps) {
    open_that_says_what_is_free();
    const auto hold_ten_units = [&] {
        std::vector<ebb_activation> all;
        for (int i = 0; i < 10; ++i) {
            all.push_back(offload_as(EBB_PLACE_KEEP, "kept"));
        }
        for (const ebb_activation a : all) {
            EBB_EXPECT_OK(ebb_release(runtime_, a));
        }
    };
    hold_ten_units();  // before the first step
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_EVALUATE));
    hold_ten_units();
    EXPECT_EQ(pool_.asked, 0);
    step_of_three_units(200 * k_size);
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_EVALUATE));
    hold_ten_units();
    EXPECT_EQ(pool_.asked, 3);
    EXPECT_EQ(stats().device_budget_bytes, 3 * k_size + 200 * k_size - k_reserve_bytes);
}

TEST_F(learned_budget, is_not_asked_for_when_one_is_given) {
    options_.device_budget_bytes = 20 * k_size;
    open_that_says_what_is_free();
    step_of_three_units(200 * k_size);
    step_of_three_units(200 * k_size);
    EXPECT_EQ(pool_.asked, 0);
    EXPECT_EQ(stats().device_budget_bytes, 20 * k_size);
}

// As many prefetches as fit what the allocator had said.
TEST_F(learned_budget, bounds_what_the_next_steps_hold) {
    for (const uint64_t units : {2U, 3U, 5U}) {
        open_that_says_what_is_free();
        const uint64_t wanted_bytes = units * k_size + k_size / 2;
        pool_.available = wanted_bytes + k_reserve_bytes - k_size;  // the recorded step holds one unit at a time
        run_step(8);
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        EXPECT_EQ(stats().device_budget_bytes, wanted_bytes);
        std::vector<std::pair<ebb_activation, buffer *>> saved;
        for (int l = 0; l < 8; ++l) {
            buffer &b = make_buffer();
            saved.emplace_back(offload(b, ("layer" + std::to_string(l)).c_str()), &b);
        }
        EXPECT_EQ(pool_.out.size(), units);
        while (!saved.empty()) {
            reload_and_return(saved.back().first, *saved.back().second);
            EXPECT_LE(stats().device_held_bytes, wanted_bytes);
            EBB_ASSERT_OK(ebb_release(runtime_, saved.back().first));
            saved.pop_back();
        }
        EXPECT_EQ(pool_.out.size(), 0U);
        pool_.runtime = nullptr;
        close();
    }
}

// The callback may call Ebb, as may any other thread meanwhile: no lock is held.
TEST_F(learned_budget, the_callback_may_call_again) {
    open_that_says_what_is_free();
    std::future<ebb_status> elsewhere;  // outlives the callback: without a hang also where a lock is held
    int calls = 0;
    pool_.in_available = [&] {
        if (++calls > 1) {
            return;
        }
        elsewhere = std::async(std::launch::async, [this] {
            ebb_statistics s = zeroed<ebb_statistics>();
            return ebb_stats(runtime_, &s);
        });
        ASSERT_EQ(elsewhere.wait_for(std::chrono::seconds(20)), std::future_status::ready) << "a lock is held";
        EXPECT_EQ(elsewhere.get(), EBB_OK);
        EBB_EXPECT_OK(ebb_progress(runtime_));
        EXPECT_EQ(stats().device_budget_bytes, 0U);
        const ebb_offload_args args = args_for(make_buffer(), "own");
        ebb_offload_info own = zeroed<ebb_offload_info>();
        EBB_EXPECT_OK(ebb_offload(runtime_, &args, &own));
        const ebb_reload_info claimed = reload(own.activation);
        EBB_EXPECT_OK(ebb_return(runtime_, claimed.claim, compute_));
        EBB_EXPECT_OK(ebb_release(runtime_, own.activation));
    };
    pool_.available = 200 * k_size;
    step_of_three_units(200 * k_size);
    EXPECT_GT(calls, 1);
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    EXPECT_EQ(stats().device_budget_bytes, 3 * k_size + 200 * k_size - k_reserve_bytes);
}

// Without it, the device's own memory counts.
TEST_F(learned_budget, needs_no_callback) {
    open_lent();
    step_of_three_units(200 * k_size);
    EXPECT_EQ(pool_.asked, 0);
    uint64_t capacity_bytes = 0;
    uint64_t used_bytes = 0;
    EBB_ASSERT_OK(ebb_host_memory(runtime_, &capacity_bytes, &used_bytes, nullptr));
    ASSERT_EQ(capacity_bytes, k_capacity_bytes);
    ASSERT_EQ(used_bytes, 3 * k_size) << "the caller's three, there since before the peak";
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    EXPECT_EQ(stats().device_budget_bytes, 3 * k_size + (capacity_bytes - used_bytes) - k_reserve_bytes);
}

using lent_create = ::testing::Test;

TEST_F(lent_create, says_what_is_missing) {
    ebb_runtime_options o = zeroed<ebb_runtime_options>();
    o.device = "host";
    o.host_device_bytes = 16 << 20;
    const ebb_allocator no_alloc = {nullptr, lent_pool::free, nullptr, nullptr};
    const ebb_allocator no_free = {lent_pool::alloc, nullptr, nullptr, nullptr};
    ebb_runtime *made = nullptr;
    o.allocator = &no_alloc;
    EBB_EXPECT_REFUSED(ebb_runtime_create(&o, &made), EBB_INVALID_ARGUMENT, "options->allocator needs both");
    o.allocator = &no_free;
    EBB_EXPECT_REFUSED(ebb_runtime_create(&o, &made), EBB_INVALID_ARGUMENT, "options->allocator needs both");
    alignas(512) static char block[4096];
    lent_pool pool;
    const ebb_allocator both = pool.interface();
    o.allocator = &both;
    o.staging_memory = block;
    o.staging_bytes = sizeof(block);
    EBB_EXPECT_REFUSED(ebb_runtime_create(&o, &made), EBB_INVALID_ARGUMENT, "staging_memory or allocator, not both");
    o.allocator = nullptr;
    o.staging_bytes = 0;
    EBB_EXPECT_REFUSED(ebb_runtime_create(&o, &made), EBB_INVALID_ARGUMENT, "without staging_bytes");
    ::setenv("EBB_STAGING_BYTES", "1MiB", 1);  // says nothing about the block
    EBB_EXPECT_REFUSED(ebb_runtime_create(&o, &made), EBB_INVALID_ARGUMENT, "without staging_bytes");
    ::unsetenv("EBB_STAGING_BYTES");
    o.staging_bytes = sizeof(block) - 64;
    o.staging_memory = block + 64;
    EBB_EXPECT_REFUSED(ebb_runtime_create(&o, &made), EBB_INVALID_ARGUMENT, "staging_memory must be aligned to 512");
    EXPECT_EQ(made, nullptr);
}

class lent_block : public capi_test {};

TEST_F(lent_block, is_where_reloads_go_and_is_never_freed_by_us) {
    std::vector<char> memory(3 * k_size + 512);
    void *at = memory.data();
    size_t space = memory.size();
    ASSERT_NE(std::align(512, 3 * k_size, at, space), nullptr);
    options_.staging_memory = at;
    options_.staging_bytes = 3 * k_size;
    open();
    std::vector<ebb_reload_info> claims;
    for (int i = 0; i < 3; ++i) {
        buffer &b = make_buffer();
        claims.push_back(reload(offload(b)));
        expect_bytes(claims.back().data, b);
        EXPECT_GE(claims.back().data, at);
        EXPECT_LT(claims.back().data, static_cast<char *>(at) + 3 * k_size);
    }
    ebb_reload_info none = zeroed<ebb_reload_info>();
    EBB_EXPECT_STATUS(ebb_reload(runtime_, offload(make_buffer()), compute_, &none), EBB_NO_SLOT);
    EXPECT_EQ(stats().staging_bytes, 3 * k_size);
    EXPECT_EQ(device_->fault().calls(call_kind::alloc_device), 0U);
    close();
    std::fill(memory.begin(), memory.end(), '\0');
}

}  // namespace
}  // namespace ebb::test
