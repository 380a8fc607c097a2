// The staged form on the calling thread: the thread copies by itself, in the call, in both directions.
#include <algorithm>
#include <cstring>
#include <future>
#include <vector>

#include "capi_fixture.hpp"

namespace ebb::test {
namespace {

const ebb_stream k_thread = EBB_STREAM_CALLING_THREAD;

class thread_copies : public capi_test {
protected:
    ebb_offload_args args_for_thread(buffer &b, const char *name = "gate") {
        ebb_offload_args a = staged_args_for(b, name);
        a.producers = &k_thread;
        a.placement = EBB_PLACE_OFFLOAD;
        return a;
    }
    ebb_status try_thread(buffer &b) {
        const ebb_offload_args args = args_for_thread(b);
        info_ = zeroed<ebb_offload_info>();
        return ebb_offload_staged(runtime_, &args, &info_);
    }
    ebb_activation offload_by_thread(buffer &b) {
        EBB_EXPECT_OK(try_thread(b));
        EXPECT_EQ(info_.placement, EBB_PLACE_OFFLOAD);
        return info_.activation;
    }
    void expect_comes_back(ebb_activation a, const buffer &b) {
        std::vector<std::byte> back(b.size_bytes);
        EBB_EXPECT_OK(ebb_reload_into(runtime_, a, back.data(), back.size(), k_thread));
        EXPECT_TRUE(has_pattern(back.data(), back.size(), b.seed));  // no ebb_wait
    }
    // Nothing was taken, and the other form does it.
    void expect_refused_once(buffer &b, ebb_status why, const char *words) {
        const ebb_statistics before = stats();
        EBB_EXPECT_REFUSED(try_thread(b), why, words);
        EXPECT_EQ(info_.activation, 0U);
        EXPECT_EQ(stats().live_activations, before.live_activations);
        EXPECT_EQ(stats().pinned_used_bytes, before.pinned_used_bytes);
        EXPECT_EQ(stats().d2h_bytes, before.d2h_bytes);
    }
};

TEST_F(thread_copies, need_no_lane_and_no_wait) {
    open();
    hold(copy_direction::d2h);  // lanes stand
    hold(copy_direction::h2d);
    for (const uint64_t size_bytes : {uint64_t{1}, uint64_t{4097}, k_size}) {
        buffer &b = make_buffer(size_bytes);
        const ebb_activation a = offload_by_thread(b);
        std::memset(b.data, 0xEE, size_bytes);
        expect_comes_back(a, b);
        expect_comes_back(a, b);
        EBB_EXPECT_OK(ebb_wait(runtime_, a));  // is over at once
        EBB_EXPECT_OK(ebb_release(runtime_, a));
    }
    EXPECT_EQ(stats().d2h_bytes, 1 + 4097 + k_size);
    EXPECT_EQ(stats().h2d_bytes, 2 * (1 + 4097 + k_size));
    expect_nothing_held();
}

TEST_F(thread_copies, are_reloaded_by_streams_too) {
    open();
    buffer &b = make_buffer();
    const ebb_activation a = offload_by_thread(b);
    std::memset(b.data, 0xEE, k_size);
    reload_and_return(a, b);
    buffer &own = make_buffer();
    EBB_EXPECT_OK(ebb_reload_into(runtime_, a, own.data, k_size, compute_));
    expect_bytes(own.data, b);
    const ebb_reload_info claimed = reload(a, k_thread);
    EBB_EXPECT_OK(ebb_wait(runtime_, a));
    EXPECT_TRUE(has_pattern(claimed.data, k_size, b.seed));
    std::memset(claimed.data, 0xEE, k_size);  // its holder may
    expect_comes_back(a, b);
    EBB_EXPECT_OK(ebb_return(runtime_, claimed.claim, k_thread));
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    expect_nothing_held();
}

// What a lane still reads of a released activation is not written over.
TEST_F(thread_copies, into_memory_that_a_lane_still_reads_are_refused) {
    options_.host_bytes = 1ULL << 20U;  // so that there is no other memory
    open();
    buffer &first = make_buffer(1ULL << 20U);
    std::vector<std::byte> back(first.size_bytes);
    const ebb_activation a = offload_by_thread(first);
    hold(copy_direction::h2d);
    EBB_ASSERT_OK(ebb_reload_into(runtime_, a, back.data(), back.size(), compute_));
    EBB_ASSERT_OK(ebb_release(runtime_, a));
    buffer &second = make_buffer(1ULL << 20U);
    expect_refused_once(second, EBB_NO_SLOT, "still read by a copy under way: use ebb_offload");
    let_all_pass();
    EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, compute_));
    EXPECT_TRUE(has_pattern(back.data(), back.size(), first.seed));
    const ebb_activation next = offload_by_thread(second);
    expect_comes_back(next, second);
    EBB_EXPECT_OK(ebb_release(runtime_, next));
    expect_nothing_held();
}

TEST_F(thread_copies, beyond_the_cap_are_refused) {
    options_.host_bytes = 1ULL << 20U;
    open();
    buffer &b = make_buffer(2ULL << 20U);
    expect_refused_once(b, EBB_OUT_OF_HOST_MEMORY, "2097152 bytes wanted");
    EXPECT_EQ(offload(b), info_.activation);
    EXPECT_EQ(info_.reason, EBB_REASON_HOST_CAP);
    EBB_EXPECT_OK(ebb_release(runtime_, info_.activation));
}

TEST_F(thread_copies, with_verify_are_refused) {
    options_.verify = true;
    open();
    expect_refused_once(make_buffer(), EBB_UNSUPPORTED, "(verify)");
}

TEST_F(thread_copies, leave_the_links_to_a_collective) {
    open();
    EBB_ASSERT_OK(ebb_collective_begin(runtime_, compute_, 1000));
    expect_refused_once(make_buffer(), EBB_NO_SLOT, "a collective has the links");
    EBB_ASSERT_OK(ebb_collective_end(runtime_, compute_));
}

TEST_F(thread_copies, that_fail_take_nothing) {
    open();
    const ebb_activation whole = offload_by_thread(make_buffer());
    device_->fault().refuse(call_kind::copy);
    expect_refused_once(make_buffer(), EBB_DEVICE_ERROR, "gate");
    device_->fault().refuse(call_kind::copy);
    std::vector<std::byte> back(k_size);
    EBB_EXPECT_STATUS(ebb_reload_into(runtime_, whole, back.data(), back.size(), k_thread), EBB_DEVICE_ERROR);
    expect_comes_back(whole, buffers_.front());
    EBB_EXPECT_OK(ebb_release(runtime_, whole));
    expect_nothing_held();
}

TEST_F(thread_copies, of_nothing_are_nothing) {
    open();
    buffer &b = make_buffer(64);
    ebb_offload_args args = args_for_thread(b);
    args.size_bytes = 0;
    args.data = nullptr;
    EBB_ASSERT_OK(ebb_offload_staged(runtime_, &args, &info_));
    EBB_EXPECT_OK(ebb_reload_into(runtime_, info_.activation, nullptr, 0, k_thread));
    EBB_EXPECT_OK(ebb_release(runtime_, info_.activation));
    expect_nothing_held();
}

TEST_F(thread_copies, say_what_they_need) {
    open();
    buffer &b = make_buffer();
    ebb_offload_args args = args_for_thread(b);
    args.placement = EBB_PLACE_BY_POLICY;
    EBB_EXPECT_REFUSED(ebb_offload_staged(runtime_, &args, &info_), EBB_INVALID_ARGUMENT, "must be EBB_PLACE_OFFLOAD");
    args = args_for_thread(b);
    const ebb_stream producers[] = {k_thread, compute_};
    args.producers = producers;
    args.producer_count = 2;
    EBB_EXPECT_REFUSED(ebb_offload_staged(runtime_, &args, &info_), EBB_INVALID_ARGUMENT, "and there are others");
    expect_nothing_held();
}

// They are part of the report like others, and all of their time is exposed.
TEST_F(thread_copies, are_counted_and_timed) {
    options_.sample_every = 1;
    options_.prefetch_bytes = k_none_bytes;  // that takes lanes
    open();
    for (int step = 0; step < 3; ++step) {
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        const ebb_activation a = offload_by_thread(make_buffer());
        expect_comes_back(a, buffers_.back());
        EBB_ASSERT_OK(ebb_release(runtime_, a));
    }
    const ebb_statistics all = stats();
    EXPECT_EQ(all.offloaded_count, 3U);
    EXPECT_EQ(all.reloads_on_demand, 3U);
    EXPECT_EQ(all.d2h_bytes, 3 * k_size);
    EXPECT_EQ(all.given_up_bytes, 3 * k_size);
    EXPECT_GT(all.exposed_ns, 0U);
    EXPECT_EQ(all.hidden_ns, 0U);
}

TEST_F(thread_copies, have_new_names_in_timed_steps) {
    options_.sample_every = 1;
    open();
    buffer &b = make_buffer(64);
    for (int step = 0; step < 3; ++step) {
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        for (int i = 0; i < 1000; ++i) {
            const std::string name = std::to_string(step) + "." + std::to_string(i);
            const ebb_offload_args args = args_for_thread(b, name.c_str());
            EBB_ASSERT_OK(ebb_offload_staged(runtime_, &args, &info_));
            EBB_ASSERT_OK(ebb_release(runtime_, info_.activation));
        }
    }
    EXPECT_EQ(stats().offloaded_count, 3000U);
}

TEST_F(thread_copies, of_many_threads_at_once) {
    open();
    std::vector<std::future<bool>> all;
    for (uint64_t thread = 0; thread < 4; ++thread) {
        all.push_back(std::async(std::launch::async, [this, thread] {
            std::vector<std::byte> own(4096), back(4096);
            bool right = true;
            for (uint64_t i = 0; i < 200; ++i) {
                fill_pattern(own.data(), own.size(), thread * 1000 + i);
                ebb_offload_args a = zeroed<ebb_offload_args>();
                a.name = "gate";
                a.data = own.data();
                a.size_bytes = own.size();
                a.producers = &k_thread;
                a.producer_count = 1;
                a.placement = EBB_PLACE_OFFLOAD;
                ebb_offload_info info = zeroed<ebb_offload_info>();
                right &= ebb_offload_staged(runtime_, &a, &info) == EBB_OK;
                std::fill(own.begin(), own.end(), std::byte{0xEE});
                right &= ebb_reload_into(runtime_, info.activation, back.data(), back.size(), k_thread) == EBB_OK;
                right &= has_pattern(back.data(), back.size(), thread * 1000 + i);
                right &= ebb_release(runtime_, info.activation) == EBB_OK;
            }
            return right;
        }));
    }
    for (std::future<bool> &one : all) {
        EXPECT_TRUE(one.get());
    }
    expect_nothing_held();
}

}  // namespace
}  // namespace ebb::test
