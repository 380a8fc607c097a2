// Collectives have the links to themselves: copies that nobody waits for are held until their end, and come behind it.

#include <thread>

#include "capi_fixture.hpp"

namespace ebb::test {
namespace {

class collective : public capi_test {
protected:
    void SetUp() override {
        capi_test::SetUp();
        options_.source_bytes = k_automatic;
        options_.max_activation_bytes = k_size;
        options_.staging_bytes = 4 * k_size;
        options_.device_budget_bytes = 64 * k_size;
    }
    void begin(ebb_stream stream) { EBB_EXPECT_OK(ebb_collective_begin(runtime_, stream, k_size)); }
    void end(ebb_stream stream) { EBB_EXPECT_OK(ebb_collective_end(runtime_, stream)); }
    // Our copies enqueued so far.
    size_t copies() { return device_->entries(call_kind::copy).size(); }
    // Nothing on the stream goes on until gate_ is opened.
    void stand(ebb_stream stream) {
        EBB_ASSERT_OK(ebb_host_launch(
            runtime_, stream,
            [](void *gate) {
                while (!static_cast<std::atomic<bool> *>(gate)->load()) {
                    std::this_thread::yield();
                }
            },
            &gate_));
    }
    std::atomic<bool> gate_{false};
};

TEST_F(collective, offloads_in_between_start_behind_its_end) {
    open();
    buffer &b = make_buffer();
    stand(other_);
    begin(other_);
    const ebb_activation a = offload(b);
    EXPECT_EQ(info_.placement, EBB_PLACE_OFFLOAD);
    EXPECT_EQ(copies(), 0U);
    end(other_);
    EXPECT_EQ(copies(), 1U) << "it goes in the call that ends the collective";
    // The copy stands behind the end: nothing has arrived in host memory while the collective stands.
    EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, compute_));
    const std::vector<trace_entry> calls = device_->entries();
    const auto copy =
        std::find_if(calls.begin(), calls.end(), [](const trace_entry &e) { return e.kind == call_kind::copy; });
    ASSERT_NE(copy, calls.end());
    const auto waits = std::count_if(calls.begin(), copy, [&](const trace_entry &e) {
        return e.kind == call_kind::wait_event && e.stream == copy->stream;
    });
    EXPECT_EQ(waits, 2) << "for its producer, and for the collective";
    gate_ = true;
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    expect_nothing_held();
}

TEST_F(collective, what_is_offloaded_later_does_not_wait_for_it) {
    options_.source_bytes = k_none_bytes;  // given up in the offload call: the reload is a copy
    open();
    stand(other_);
    begin(other_);
    end(other_);
    buffer &b = make_buffer();
    const ebb_activation a = offload(b);
    const ebb_reload_info info = reload(a);
    expect_bytes(info.data, b);
    EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    gate_ = true;
}

TEST_F(collective, a_source_whose_memory_is_needed_is_copied_at_once_with_those_before_it) {
    options_.device_budget_bytes = options_.staging_bytes + 3 * k_size;
    open();
    begin(other_);
    const ebb_activation one = offload(make_buffer(), "one");
    const ebb_activation two = offload(make_buffer(), "two");
    const size_t before = copies();
    const ebb_activation three = offload(make_buffer(), "three");
    const ebb_activation four = offload(make_buffer(), "four");
    EXPECT_GT(copies(), before);
    EXPECT_LT(copies(), 4U) << "only those whose memory is needed";
    end(other_);
    EXPECT_EQ(copies(), 4U);
    const std::vector<trace_entry> all = device_->entries(call_kind::copy);
    for (size_t i = 1; i < all.size(); ++i) {
        EXPECT_GT(all[i].source.region, all[i - 1].source.region) << "in the order of the calls";
    }
    for (const ebb_activation a : {one, two, three, four}) {
        const ebb_reload_info info = reload(a);
        EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
        EBB_EXPECT_OK(ebb_release(runtime_, a));
    }
    expect_nothing_held();
}

TEST_F(collective, a_source_handed_back_meanwhile_is_never_copied) {
    for (const bool verify : {false, true}) {
        options_.verify = verify;
        open();
        for (int i = 0; i < 3; ++i) {
            buffer &b = make_buffer();
            begin(other_);
            const ebb_activation a = offload(b);
            const ebb_reload_info info = reload(a);
            EXPECT_EQ(info.data, b.data);
            end(other_);
            EXPECT_EQ(stats().d2h_bytes, 0U);
            EXPECT_EQ(stats().pinned_used_bytes, 0U);
            EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
            EBB_EXPECT_OK(ebb_release(runtime_, a));
            EXPECT_EQ(b.deleted, 1);
            expect_nothing_held();
        }
        close();
    }
}

TEST_F(collective, one_that_is_released_meanwhile_is_never_copied) {
    open();
    buffer &b = make_buffer();
    begin(other_);
    const ebb_activation a = offload(b);
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EXPECT_EQ(b.deleted, 1);
    expect_nothing_held();
    end(other_);
    EXPECT_EQ(stats().d2h_bytes, 0U);
}

TEST_F(collective, the_staged_form_is_held_too_and_goes_when_it_is_read) {
    open();
    for (const bool read_before_the_end : {false, true}) {
        buffer &b = make_buffer();
        const ebb_offload_args args = staged_args_for(b);
        begin(other_);
        const uint64_t copied = stats().d2h_bytes;
        EBB_ASSERT_OK(ebb_offload_staged(runtime_, &args, &info_));
        const ebb_activation a = info_.activation;
        EXPECT_EQ(stats().d2h_bytes, copied);
        if (read_before_the_end) {
            reload_and_return(a, b);
            end(other_);
        } else {
            end(other_);
            EXPECT_EQ(stats().d2h_bytes, copied + k_size);
            reload_and_return(a, b);
        }
        EBB_EXPECT_OK(ebb_release(runtime_, a));
        expect_nothing_held();
    }
    begin(other_);
    buffer &b = make_buffer();
    const ebb_offload_args args = staged_args_for(b);
    EBB_ASSERT_OK(ebb_offload_staged(runtime_, &args, &info_));
    EBB_EXPECT_OK(ebb_release(runtime_, info_.activation));
    expect_nothing_held();
    end(other_);
}

TEST_F(collective, those_of_two_streams_may_overlap) {
    open();
    begin(other_);
    begin(compute_);
    const ebb_activation a = offload(make_buffer());
    end(other_);
    EXPECT_EQ(copies(), 0U) << "the second one still runs";
    end(compute_);
    EXPECT_EQ(copies(), 1U);
    EBB_EXPECT_OK(ebb_release(runtime_, a));
}

TEST_F(collective, a_copy_that_fails_when_it_is_issued_keeps_the_source) {
    open();
    buffer &b = make_buffer();
    begin(other_);
    const ebb_activation a = offload(b);
    device_->fault().refuse(call_kind::copy);
    end(other_);
    EBB_EXPECT_REFUSED(ebb_progress(runtime_), EBB_DEVICE_ERROR, "offload of 'gate'");
    const ebb_reload_info info = reload(a);
    EXPECT_EQ(info.data, b.data);
    EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EXPECT_EQ(b.deleted, 1);
    expect_nothing_held();
}

TEST_F(collective, prefetches_wait_for_its_end) {
    options_.source_bytes = k_none_bytes;
    options_.staging_bytes = 2 * k_size;
    open();
    for (int step = 0; step < 3; ++step) {
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        std::vector<ebb_activation> saved;
        std::vector<buffer *> from;
        for (int i = 0; i < 4; ++i) {
            from.push_back(&make_buffer());
            if (i == 3) {
                begin(other_);
            }
            saved.push_back(offload(*from.back(), ("layer." + std::to_string(i)).c_str()));
        }
        const uint64_t reloaded = stats().h2d_bytes;
        EBB_EXPECT_OK(ebb_progress(runtime_));
        EXPECT_EQ(stats().h2d_bytes, reloaded);
        end(other_);
        if (step == 2) {
            EXPECT_GT(stats().h2d_bytes, reloaded) << "the window goes on in the call that ends it";
        }
        for (size_t i = saved.size(); i-- > 0;) {
            reload_and_return(saved[i], *from[i]);
            EBB_EXPECT_OK(ebb_release(runtime_, saved[i]));
        }
    }
    EXPECT_GT(stats().reloads_prefetched, 0U);
}

TEST_F(collective, ends_what_began_on_the_same_stream) {
    open();
    EBB_EXPECT_REFUSED(ebb_collective_end(runtime_, other_), EBB_WRONG_STATE, "without ebb_collective_begin");
    begin(other_);
    EBB_EXPECT_REFUSED(ebb_collective_begin(runtime_, other_, 0), EBB_WRONG_STATE, "was not ended");
    EBB_EXPECT_REFUSED(ebb_collective_end(runtime_, compute_), EBB_WRONG_STATE, "on this stream");
    EBB_EXPECT_REFUSED(ebb_collective_begin(runtime_, 12345, 0), EBB_INVALID_ARGUMENT, "stream");
    EBB_EXPECT_REFUSED(ebb_collective_begin(runtime_, compute_, ~uint64_t{0}), EBB_INVALID_ARGUMENT, "size_bytes");
    end(other_);
    begin(other_);  // close ends it
    static_cast<void>(offload(make_buffer()));
}

TEST_F(collective, goes_on_over_a_step_boundary) {
    open();
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    begin(other_);
    const ebb_activation a = offload(make_buffer());
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    EXPECT_EQ(copies(), 0U);
    end(other_);
    EXPECT_EQ(copies(), 1U);
    EBB_EXPECT_OK(ebb_release(runtime_, a));
}

}  // namespace
}  // namespace ebb::test
