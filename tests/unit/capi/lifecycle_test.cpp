// One activation's life: handles, claims, release, drop, close, and deleters that run once and may call Ebb.

#include "capi/dlpack_abi.hpp"
#include "capi_fixture.hpp"

namespace ebb::test {
namespace {

class lifecycle : public capi_test {};

// --------------------------------------------------------------------------------------------------- handles --

TEST_F(lifecycle, handles_that_are_none_are_stale_and_never_crash) {
    open();
    buffer &b = make_buffer();
    const ebb_activation live = offload(b);
    const ebb_reload_info claimed = reload(live);
    std::vector<char> space(k_size);
    ebb_reload_info loaded = zeroed<ebb_reload_info>();
    DLManagedTensorVersioned *tensor = nullptr;
    for (const uint64_t none : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, live + 1, live + (uint64_t{1} << 32U),
                                uint64_t{0xFFFFFFFF}, claimed.claim}) {
        SCOPED_TRACE(none);
        EBB_EXPECT_REFUSED(ebb_reload(runtime_, none, compute_, &loaded), EBB_STALE_HANDLE, "activation 0x");
        EBB_EXPECT_REFUSED(ebb_reload_into(runtime_, none, space.data(), k_size, compute_), EBB_STALE_HANDLE,
                           "activation");
        EBB_EXPECT_REFUSED(ebb_reload_dlpack(runtime_, none, compute_, &tensor), EBB_STALE_HANDLE, "activation");
        EBB_EXPECT_REFUSED(ebb_wait(runtime_, none), EBB_STALE_HANDLE, "activation");
        EBB_EXPECT_REFUSED(ebb_release(runtime_, none), EBB_STALE_HANDLE, "activation");
    }
    for (const uint64_t none : {uint64_t{0}, uint64_t{7}, ~uint64_t{0}, claimed.claim + 1, live}) {
        SCOPED_TRACE(none);
        EBB_EXPECT_REFUSED(ebb_use(runtime_, none, compute_), EBB_STALE_HANDLE, "claim 0x");
        EBB_EXPECT_REFUSED(ebb_return(runtime_, none, compute_), EBB_STALE_HANDLE, "claim 0x");
    }
    EXPECT_EQ(loaded.claim, 0U);
    EXPECT_EQ(tensor, nullptr);
    EXPECT_EQ(stats().live_activations, 1U);
}

TEST_F(lifecycle, a_second_return_or_release_is_stale) {
    open();
    const ebb_activation a = offload(make_buffer());
    const ebb_reload_info info = reload(a);
    EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
    EBB_EXPECT_STATUS(ebb_return(runtime_, info.claim, compute_), EBB_STALE_HANDLE);
    EBB_EXPECT_STATUS(ebb_use(runtime_, info.claim, compute_), EBB_STALE_HANDLE);
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EBB_EXPECT_STATUS(ebb_release(runtime_, a), EBB_STALE_HANDLE);
    // Its record is used again, its handle is not.
    const ebb_activation next = offload(make_buffer());
    EXPECT_NE(next, a);
    EBB_EXPECT_STATUS(ebb_release(runtime_, a), EBB_STALE_HANDLE);
    EBB_EXPECT_OK(ebb_release(runtime_, next));
}

TEST_F(lifecycle, handles_of_another_runtime_are_stale) {
    open();
    ebb_runtime_options o = zeroed<ebb_runtime_options>();
    o.device = "host";
    o.host_device_bytes = 16 << 20;
    ebb_runtime *second = nullptr;
    EBB_ASSERT_OK(ebb_runtime_create(&o, &second));
    const ebb_activation a = offload(make_buffer());
    const ebb_reload_info info = reload(a);
    char word[8] = {};
    ebb_offload_args args = zeroed<ebb_offload_args>();
    args.name = "x";
    args.data = word;
    args.size_bytes = sizeof(word);
    const ebb_stream thread = EBB_STREAM_CALLING_THREAD;
    args.producers = &thread;
    args.producer_count = 1;
    ebb_offload_info theirs = zeroed<ebb_offload_info>();
    EBB_ASSERT_OK(ebb_offload(second, &args, &theirs));
    EBB_EXPECT_STATUS(ebb_release(second, a), EBB_STALE_HANDLE);
    EBB_EXPECT_STATUS(ebb_return(second, info.claim, EBB_STREAM_DEFAULT), EBB_STALE_HANDLE);
    EBB_EXPECT_STATUS(ebb_release(runtime_, theirs.activation), EBB_STALE_HANDLE);
    EBB_EXPECT_OK(ebb_release(second, theirs.activation));
    EBB_EXPECT_OK(ebb_runtime_close(second, EBB_CLOSE_DEFAULT));
}

// ---------------------------------------------------------------------------------------------------- claims --

TEST_F(lifecycle, an_activation_may_be_reloaded_again_before_and_after_the_return) {
    open();
    buffer &b = make_buffer();
    const ebb_activation a = offload(b);
    const ebb_reload_info one = reload(a);
    const ebb_reload_info two = reload(a);
    EXPECT_NE(one.claim, two.claim);
    EXPECT_EQ(one.data, two.data);
    EBB_EXPECT_OK(ebb_return(runtime_, one.claim, compute_));
    EXPECT_GT(stats().staging_used_bytes, 0U) << "the second claim holds the slot";
    expect_bytes(two.data, b);
    EBB_EXPECT_OK(ebb_return(runtime_, two.claim, compute_));
    EXPECT_EQ(stats().staging_used_bytes, 0U);
    reload_and_return(a, b);
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    expect_nothing_held();
    EXPECT_EQ(b.deleted, 1);
}

TEST_F(lifecycle, claims_that_are_out_at_the_release_keep_their_slot) {
    open();
    buffer &b = make_buffer();
    const ebb_activation a = offload(b);
    const ebb_reload_info info = reload(a);
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EXPECT_EQ(stats().live_activations, 0U);
    EXPECT_GT(stats().staging_used_bytes, 0U);
    // Whatever else comes, it does not go over the claimed bytes.
    for (int i = 0; i < 4; ++i) {
        buffer &more = make_buffer();
        const ebb_activation m = offload(more, "more");
        reload_and_return(m, more);
        EBB_EXPECT_OK(ebb_release(runtime_, m));
    }
    expect_bytes(info.data, b);
    EBB_EXPECT_OK(ebb_use(runtime_, info.claim, other_));
    EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
    expect_nothing_held();
    EXPECT_EQ(b.deleted, 1);
}

TEST_F(lifecycle, claims_that_are_out_at_the_release_keep_a_source_that_was_handed_back) {
    options_.source_bytes = k_automatic;
    open();
    buffer &b = make_buffer();
    const ebb_activation a = offload(b);
    const ebb_reload_info info = reload(a);
    EXPECT_EQ(info.data, b.data);
    EXPECT_EQ(stats().forwarded_count, 1U);
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EXPECT_EQ(b.deleted, 0);
    EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
    EXPECT_EQ(b.deleted, 1);
    expect_nothing_held();
}

TEST_F(lifecycle, a_source_that_was_not_given_up_is_given_up_by_the_release) {
    options_.source_bytes = k_automatic;
    open();
    buffer &b = make_buffer();
    const ebb_activation a = offload(b);
    EXPECT_EQ(b.deleted, 0);
    EXPECT_EQ(stats().source_bytes, k_size);
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EXPECT_EQ(b.deleted, 1);
    expect_nothing_held();
}

// Further readers: the slot's next copy waits for each of them.
TEST_F(lifecycle, a_slot_is_reused_behind_every_declared_reader) {
    options_.staging_bytes = 2 * k_size;
    options_.max_activation_bytes = k_size;
    open();
    buffer &b = make_buffer();
    const ebb_activation a = offload(b);
    const ebb_reload_info info = reload(a);
    ebb_stream readers[2] = {other_, 0};
    EBB_ASSERT_OK(ebb_host_stream_create(runtime_, &readers[1]));
    struct reading {
        std::atomic<bool> go{false};
        std::atomic<int> right{0};
        const void *data;
        uint64_t seed;
    } r;
    r.data = info.data;
    r.seed = b.seed;
    for (const ebb_stream reader : readers) {
        EBB_ASSERT_OK(ebb_use(runtime_, info.claim, reader));
        EBB_ASSERT_OK(ebb_use(runtime_, info.claim, reader));  // twice is once
        EBB_ASSERT_OK(ebb_host_launch(
            runtime_, reader,
            [](void *argument) {
                auto *x = static_cast<reading *>(argument);
                while (!x->go) {
                    std::this_thread::yield();
                }
                x->right += has_pattern(x->data, k_size, x->seed) ? 1 : 0;
            },
            &r));
    }
    EBB_ASSERT_OK(ebb_return(runtime_, info.claim, compute_));
    // These take both slots, while the readers have not begun.
    std::vector<ebb_reload_info> taken;
    for (int i = 0; i < 2; ++i) {
        taken.push_back(reload(offload(make_buffer(), "more")));
    }
    r.go = true;
    for (const ebb_stream reader : readers) {
        EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, reader));
    }
    EXPECT_EQ(r.right, 2);
    for (const ebb_reload_info &t : taken) {
        EBB_EXPECT_OK(ebb_return(runtime_, t.claim, compute_));
    }
}

TEST_F(lifecycle, a_claim_takes_eight_further_streams) {
    open();
    const ebb_reload_info info = reload(offload(make_buffer()));
    for (int i = 0; i < 8; ++i) {
        ebb_stream stream = 0;
        EBB_ASSERT_OK(ebb_host_stream_create(runtime_, &stream));
        EBB_EXPECT_OK(ebb_use(runtime_, info.claim, stream));
    }
    EBB_EXPECT_REFUSED(ebb_use(runtime_, info.claim, other_), EBB_UNSUPPORTED, "8 further streams");
    EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
}

// --------------------------------------------------------------------------------------------- zero size, kept --

TEST_F(lifecycle, an_activation_without_bytes_lives_like_the_others) {
    open();
    buffer b;
    const ebb_activation a = offload(args_for(b));
    EXPECT_EQ(info_.placement, EBB_PLACE_KEEP);
    const ebb_reload_info info = reload(a);
    EXPECT_EQ(info.size_bytes, 0U);
    EBB_EXPECT_OK(ebb_reload_into(runtime_, a, nullptr, 0, compute_));
    EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EXPECT_EQ(b.deleted, 1);
    expect_nothing_held();
}

TEST_F(lifecycle, a_kept_source_is_deleted_by_the_release) {
    open();
    buffer &b = make_buffer();
    ebb_offload_args args = args_for(b);
    args.placement = EBB_PLACE_KEEP;
    const ebb_activation a = offload(args);
    EXPECT_EQ(info_.placement, EBB_PLACE_KEEP);
    EXPECT_EQ(info_.reason, EBB_REASON_POLICY);
    const ebb_reload_info info = reload(a);
    EXPECT_EQ(info.data, b.data);
    EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
    EXPECT_EQ(stats().kept_bytes, k_size);
    EXPECT_EQ(b.deleted, 0);
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EXPECT_EQ(b.deleted, 1);
    EXPECT_EQ(stats().d2h_bytes, 0U);
    expect_nothing_held();
}

// ---------------------------------------------------------------------------------------------------- scopes --

TEST_F(lifecycle, the_scope_stack_belongs_to_runtime_and_thread) {
    open();
    EBB_ASSERT_OK(ebb_scope_push(runtime_, "decoder"));
    EBB_ASSERT_OK(ebb_scope_push(runtime_, "layer.3"));
    std::thread([&] {
        EBB_EXPECT_STATUS(ebb_scope_pop(runtime_), EBB_WRONG_STATE);
        offload(make_buffer(), "elsewhere");
    }).join();
    offload(make_buffer());
    EBB_EXPECT_OK(ebb_scope_pop(runtime_));
    EBB_EXPECT_OK(ebb_scope_pop(runtime_));
    EBB_EXPECT_REFUSED(ebb_scope_pop(runtime_), EBB_WRONG_STATE, "without a scope");
    std::string report;
    EBB_ASSERT_OK(ebb_report_write(
        runtime_, EBB_REPORT_JSON,
        [](void *to, const char *text, uint64_t size) { static_cast<std::string *>(to)->append(text, size); },
        &report));
    EXPECT_THAT(report, ::testing::HasSubstr("\"decoder/layer.3/gate\""));
    EXPECT_THAT(report, ::testing::HasSubstr("\"elsewhere\""));
}

// Of a step with two activations of one layer: told apart by nothing but how the scopes were given.
TEST_F(lifecycle, a_path_is_a_name_under_scopes) {
    std::vector<std::string> records;
    for (const bool by_path : {false, true}) {
        open();
        for (int step = 0; step < 3; ++step) {
            EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
            EBB_ASSERT_OK(ebb_scope_push(runtime_, by_path ? "model/decoder" : "model"));
            if (!by_path) {
                EBB_ASSERT_OK(ebb_scope_push(runtime_, "decoder"));
                EBB_ASSERT_OK(ebb_scope_push(runtime_, "layer.3"));
            }
            for (const char *name : {"gate", "up"}) {
                const std::string path = by_path ? "layer.3/" + std::string(name) : name;
                EBB_ASSERT_OK(ebb_release(runtime_, offload(make_buffer(), path.c_str())));
            }
            for (int i = 0; i < (by_path ? 1 : 3); ++i) {
                EBB_ASSERT_OK(ebb_scope_pop(runtime_));
            }
            EBB_EXPECT_STATUS(ebb_scope_pop(runtime_), EBB_WRONG_STATE);
        }
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        EBB_ASSERT_OK(ebb_record_export(
            runtime_,
            [](void *to, const char *text, uint64_t size) { static_cast<std::string *>(to)->append(text, size); },
            &records.emplace_back()));
        EBB_EXPECT_OK(ebb_runtime_close(std::exchange(runtime_, nullptr), 0));
    }
    EXPECT_THAT(records[0], ::testing::HasSubstr("\"model/decoder/layer.3/up\""));
    EXPECT_EQ(records[0], records[1]);
}

// ------------------------------------------------------------------------------------------------------ drop --

TEST_F(lifecycle, drop_only_queues_and_the_next_call_does_the_work) {
    options_.source_bytes = k_automatic;
    open();
    buffer &b = make_buffer();
    const ebb_activation a = offload(b);
    std::thread([&] { EBB_EXPECT_OK(ebb_drop(runtime_, a)); }).join();
    EXPECT_EQ(b.deleted, 0);
    EBB_EXPECT_OK(ebb_progress(runtime_));
    EXPECT_EQ(b.deleted, 1);
    EBB_EXPECT_STATUS(ebb_release(runtime_, a), EBB_STALE_HANDLE);
    expect_nothing_held();
}

TEST_F(lifecycle, a_stale_drop_is_named_once_by_the_next_call_that_reports) {
    open();
    const ebb_activation a = offload(make_buffer());
    EBB_EXPECT_REFUSED(ebb_drop(runtime_, 0), EBB_STALE_HANDLE, "activation is 0");
    EBB_EXPECT_OK(ebb_drop(runtime_, a));
    EBB_EXPECT_OK(ebb_drop(runtime_, a));
    EBB_EXPECT_REFUSED(ebb_progress(runtime_), EBB_STALE_HANDLE, "queued by another call: activation 0x");
    EBB_EXPECT_OK(ebb_progress(runtime_));
}

TEST_F(lifecycle, drop_from_inside_a_deleter_is_done) {
    options_.source_bytes = k_automatic;
    open();
    buffer &first = make_buffer();
    buffer &second = make_buffer();
    ebb_offload_args kept = args_for(first);
    kept.placement = EBB_PLACE_KEEP;
    const ebb_activation a = offload(kept);
    const ebb_activation b = offload(second, "up");
    first.in_deleter = [&] { EBB_EXPECT_OK(ebb_drop(runtime_, b)); };
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EBB_EXPECT_OK(ebb_progress(runtime_));
    EXPECT_EQ(second.deleted, 1);
    expect_nothing_held();
}

// ---------------------------------------------------------------------------------------- deleters that call us --

TEST_F(lifecycle, deleters_may_offload_reload_release_and_ask) {
    options_.source_bytes = k_automatic;
    open();
    buffer &outer = make_buffer();
    buffer &inner = make_buffer();
    ebb_activation made = 0;
    outer.in_deleter = [&] {
        made = offload(inner, "inner");
        const ebb_reload_info info = reload(made);
        EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
        EBB_EXPECT_OK(ebb_release(runtime_, made));
        EXPECT_EQ(stats().live_activations, 0U);
        EBB_EXPECT_OK(ebb_wait_room(runtime_));
        EBB_EXPECT_REFUSED(ebb_runtime_close(runtime_, EBB_CLOSE_FORCE), EBB_WRONG_STATE, "callback");
    };
    EBB_EXPECT_OK(ebb_release(runtime_, offload(outer)));
    EXPECT_EQ(outer.deleted, 1);
    EXPECT_EQ(inner.deleted, 1);
    expect_nothing_held();
}

// Each deleter's call would run the next ones inside it: the stack must not grow with their number.
TEST_F(lifecycle, many_deleters_that_call_us_do_not_use_up_the_stack) {
    constexpr int k_many = 60000;
    open();
    struct counter {
        ebb_runtime *runtime;
        int ran;
    } ran{runtime_, 0};
    for (int i = 0; i < k_many; ++i) {
        ebb_offload_args args = zeroed<ebb_offload_args>();
        args.name = "none";
        args.producers = &compute_;
        args.producer_count = 1;
        args.deleter = [](void *context) {
            auto *c = static_cast<counter *>(context);
            ++c->ran;
            EBB_EXPECT_OK(ebb_progress(c->runtime));
        };
        args.deleter_context = &ran;
        offload(args);
    }
    close();
    EXPECT_EQ(ran.ran, k_many);
}

// ----------------------------------------------------------------------------------------------------- close --

TEST_F(lifecycle, close_with_a_live_activation_names_it_and_the_runtime_lives_on) {
    open();
    buffer &b = make_buffer();
    EBB_ASSERT_OK(ebb_scope_push(runtime_, "layer.7"));
    const ebb_activation a = offload(b);
    EBB_ASSERT_OK(ebb_scope_pop(runtime_));
    EBB_EXPECT_REFUSED(ebb_runtime_close(runtime_, EBB_CLOSE_DEFAULT), EBB_BUSY, "'layer.7/gate', 65536 bytes");
    reload_and_return(a, b);
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EBB_EXPECT_OK(ebb_runtime_close(std::exchange(runtime_, nullptr), EBB_CLOSE_DEFAULT));
    EXPECT_EQ(b.deleted, 1);
}

TEST_F(lifecycle, close_counts_what_was_dropped_as_ended) {
    open();
    buffer &b = make_buffer();
    EBB_EXPECT_OK(ebb_drop(runtime_, offload(b)));
    EBB_EXPECT_OK(ebb_runtime_close(std::exchange(runtime_, nullptr), EBB_CLOSE_DEFAULT));
    EXPECT_EQ(b.deleted, 1);
}

// Every kind of activation at once.
TEST_F(lifecycle, force_close_runs_every_deleter_once) {
    options_.source_bytes = k_automatic;
    open();
    const auto with = [&](const char *name, auto &&change) {
        ebb_offload_args args = args_for(make_buffer(), name);
        change(args);
        return offload(args);
    };
    const auto plain = [](ebb_offload_args &) {};
    with("kept", [](ebb_offload_args &a) { a.placement = EBB_PLACE_KEEP; });
    const ebb_activation forwarded = with("forwarded", plain);
    static_cast<void>(reload(forwarded));
    const ebb_activation source = with("recompute_from", plain);
    with("recompute", [&](ebb_offload_args &a) {
        a.flags = EBB_OFFLOAD_CAN_RECOMPUTE;
        a.placement = EBB_PLACE_RECOMPUTE;
        a.recompute_from = &source;
        a.recompute_from_count = 1;
    });
    EBB_EXPECT_OK(ebb_release(runtime_, source));  // lives on for the one above
    const ebb_stream thread = EBB_STREAM_CALLING_THREAD;
    with("thread_home", [&](ebb_offload_args &a) { a.home = &thread; });
    const ebb_activation whole = with("storage", [](ebb_offload_args &a) { a.storage_id = 9; });
    ebb_offload_args view = args_for(make_buffer(), "view");
    view.data = static_cast<char *>(buffers_[buffers_.size() - 2].data) + 512;
    view.size_bytes = 1024;
    view.storage_id = 9;
    static_cast<void>(reload(offload(view)));
    EBB_EXPECT_OK(ebb_release(runtime_, whole));
    const ebb_activation released = with("claimed_and_released", plain);
    static_cast<void>(reload(released));
    EBB_EXPECT_OK(ebb_release(runtime_, released));
    EBB_EXPECT_OK(ebb_drop(runtime_, with("dropped", plain)));
    with("pending", plain);
    close();
    for (const buffer &b : buffers_) {
        EXPECT_EQ(b.deleted, 1);
    }
}

TEST_F(lifecycle, deleters_at_close_may_call_but_not_offload) {
    open();
    buffer &b = make_buffer();
    buffer &late = make_buffer();
    ebb_offload_args args = args_for(b);
    args.placement = EBB_PLACE_KEEP;
    offload(args);
    ebb_runtime *closing = runtime_;
    b.in_deleter = [&] {
        const ebb_offload_args more = args_for(late);
        EBB_EXPECT_REFUSED(ebb_offload(closing, &more, &info_), EBB_WRONG_STATE, "being closed");
        ebb_statistics s = zeroed<ebb_statistics>();
        EBB_EXPECT_OK(ebb_stats(closing, &s));
        EXPECT_EQ(s.live_activations, 0U);
    };
    close();
    EXPECT_EQ(b.deleted, 1);
    EXPECT_EQ(late.deleted, 0);
}

// EBB_BUSY, EBB_WRONG_STATE and EBB_INVALID_ARGUMENT say that the runtime lives on.
TEST_F(lifecycle, a_close_that_is_wrong_leaves_the_runtime) {
    open();
    EBB_EXPECT_REFUSED(ebb_runtime_close(runtime_, 2), EBB_INVALID_ARGUMENT, "flags is 0x2");
    buffer &b = make_buffer();
    reload_and_return(offload(b), b);
}

TEST_F(lifecycle, a_second_release_that_was_queued_is_no_wrong_state_of_close) {
    open();
    const ebb_activation source = offload(make_buffer(), "source");
    ebb_offload_args args = args_for(make_buffer(), "recompute");
    args.recompute_from = &source;
    args.recompute_from_count = 1;
    offload(args);
    EBB_EXPECT_OK(ebb_release(runtime_, source));
    EBB_EXPECT_OK(ebb_drop(runtime_, source));
    EBB_EXPECT_REFUSED(ebb_runtime_close(std::exchange(runtime_, nullptr), EBB_CLOSE_FORCE), EBB_STALE_HANDLE,
                       "queued by another call: activation 'source' was released before");
}

TEST_F(lifecycle, a_stream_that_is_gone_in_the_background_is_no_invalid_argument_of_close) {
    open();
    DLManagedTensorVersioned *tensor = nullptr;
    EBB_ASSERT_OK(ebb_reload_dlpack(runtime_, offload(make_buffer()), other_, &tensor));
    EBB_ASSERT_OK(ebb_host_stream_destroy(runtime_, other_));
    tensor->deleter(tensor);
    EBB_EXPECT_REFUSED(ebb_runtime_close(std::exchange(runtime_, nullptr), EBB_CLOSE_FORCE), EBB_DEVICE_ERROR,
                       "queued by another call");
}

TEST_F(lifecycle, close_waits_for_copies_that_are_in_flight) {
    options_.source_bytes = k_automatic;
    open();
    hold(copy_direction::d2h);
    buffer &b = make_buffer();
    const ebb_activation a = offload(b);
    EBB_EXPECT_OK(ebb_drop(runtime_, a));
    ASSERT_TRUE(device_->fault().wait_until_held(copy_direction::d2h).ok());
    std::atomic<bool> closed{false};
    std::thread closer([&] {
        EBB_EXPECT_OK(ebb_runtime_close(runtime_, EBB_CLOSE_DEFAULT));
        closed = true;
    });
    EXPECT_FALSE(closed);
    let_all_pass();
    closer.join();
    runtime_ = nullptr;
    EXPECT_EQ(b.deleted, 1);
}

}  // namespace
}  // namespace ebb::test
