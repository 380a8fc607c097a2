// Rules about captures: what they forbid, and how streams get into them and out.
#include "cuda_program.hpp"

namespace ebb::test {
namespace {

// A call that may be unsafe, and where to find it in a failure.
struct unsafe_call {
    const char *name;
    std::function<cudaError_t()> make;
};

class cuda_captures : public cuda_program {
protected:
    // With real arguments: but for the capture each of them succeeds.
    std::vector<unsafe_call> unsafe_calls() {
        return {
            {"malloc",
             [this] {
                 const cudaError_t error = api().malloc(&data_, k_bytes);
                 undo_.emplace_back([this, gone = data_] { ok(api().free(gone)); });
                 return error;
             }},
            {"free", [this] { return api().free(nullptr); }},
            {"host_alloc",
             [this] {
                 const cudaError_t error = api().host_alloc(&data_, k_bytes, cudaHostAllocDefault);
                 undo_.emplace_back([this, gone = data_] { ok(api().free_host(gone)); });
                 return error;
             }},
            {"free_host", [this] { return api().free_host(nullptr); }},
            {"host_register", [this] { return api().host_register(own_.data(), own_.size(), 0); }},
            {"host_unregister", [this] { return api().host_unregister(own_.data()); }},
            {"mem_get_info",
             [this] {
                 size_t free_bytes = 0;
                 size_t total_bytes = 0;
                 return api().mem_get_info(&free_bytes, &total_bytes);
             }},
            {"event_query", [this] { return api().event_query(eager_); }},
            {"event_synchronize", [this] { return api().event_synchronize(eager_); }},
            {"stream_create_with_flags",
             [this] {
                 cudaStream_t made = nullptr;
                 const cudaError_t error = api().stream_create_with_flags(&made, cudaStreamNonBlocking);
                 undo_.emplace_back([this, made] { ok(error_of_destroying(made)); });
                 return error;
             }},
            {"stream_query", [this] { return user().stream_query(other_); }},
            {"stream_synchronize", [this] { return user().stream_synchronize(other_); }},
            {"memcpy", [this] { return user().memcpy(there_, here_, k_bytes, cudaMemcpyHostToDevice); }},
        };
    }
    cudaError_t error_of_destroying(cudaStream_t made) {
        return made == nullptr ? cudaSuccess : api().stream_destroy(made);
    }
    void captures_forbid(const std::function<void(const std::function<void()> &)> &where, cuda_rule rule) {
        for (const unsafe_call &unsafe : unsafe_calls()) {
            SCOPED_TRACE(unsafe.name);
            ok(user().stream_begin_capture(on_, cudaStreamCaptureModeGlobal));
            where([&] { breaks(rule, unsafe.make(), cudaErrorStreamCaptureUnsupported); });
            EXPECT_EQ(status_of(on_), cudaStreamCaptureStatusInvalidated);
            end_spoilt(on_);
        }
    }
    void captures_permit(const std::function<void(const std::function<void()> &)> &where, cudaStreamCaptureMode mode) {
        ok(user().stream_begin_capture(on_, mode));
        where([&] {
            for (const unsafe_call &unsafe : unsafe_calls()) {
                SCOPED_TRACE(unsafe.name);
                ok(unsafe.make());
            }
        });
        cudaGraph_t graph = nullptr;
        ok(user().stream_end_capture(on_, &graph));
    }

    void *data_ = nullptr;
    std::vector<std::byte> own_ = std::vector<std::byte>(k_bytes);
    cudaStream_t on_ = stream();
    cudaStream_t other_ = stream();
    cudaEvent_t eager_ = event();
    uint64_t *here_ = pinned_memory();
    uint64_t *there_ = device_memory();
};

TEST_F(cuda_captures, unsafe_call_beside_a_global_capture) {
    captures_forbid(on_another_thread, cuda_rule::unsafe_call_beside_a_global_capture);
}

TEST_F(cuda_captures, unsafe_call_in_own_capture) {
    captures_forbid([](const std::function<void()> &body) { body(); }, cuda_rule::unsafe_call_in_own_capture);
    ok(user().stream_begin_capture(on_, cudaStreamCaptureModeThreadLocal));
    breaks(cuda_rule::unsafe_call_in_own_capture, api().event_query(eager_), cudaErrorStreamCaptureUnsupported);
    end_spoilt(on_);
}

TEST_F(cuda_captures, thread_local_ignores_other_threads) {
    captures_permit(on_another_thread, cudaStreamCaptureModeThreadLocal);
}

TEST_F(cuda_captures, thread_local_ignores_other_threads_also_global_ones) {
    captures_permit(
        [this](const std::function<void()> &body) {
            on_another_thread([&] {
                cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
                ok(api().thread_exchange_stream_capture_mode(&mode));
                EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
                body();
            });
        },
        cudaStreamCaptureModeGlobal);
}

TEST_F(cuda_captures, relaxed_mode_permits) {
    const auto relaxed = [this](const std::function<void()> &body) {
        cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
        ok(api().thread_exchange_stream_capture_mode(&mode));
        body();
        ok(api().thread_exchange_stream_capture_mode(&mode));
        EXPECT_EQ(mode, cudaStreamCaptureModeRelaxed);
    };
    captures_permit(relaxed, cudaStreamCaptureModeGlobal);
}

TEST_F(cuda_captures, relaxed_mode_permits_also_beside_another_threads) {
    captures_permit(
        [this](const std::function<void()> &body) {
            on_another_thread([&] {
                cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
                ok(api().thread_exchange_stream_capture_mode(&mode));
                body();
            });
        },
        cudaStreamCaptureModeGlobal);
}

TEST_F(cuda_captures, relaxed_mode_permits_in_a_relaxed_capture) {
    captures_permit([](const std::function<void()> &body) { body(); }, cudaStreamCaptureModeRelaxed);
}

TEST_F(cuda_captures, captured_event_is_not_asked) {
    const cudaEvent_t captured = event(cudaEventDefault);
    float ms = 0;
    for (const std::function<cudaError_t()> &ask : std::vector<std::function<cudaError_t()>>{
             [&] { return api().event_query(captured); }, [&] { return api().event_synchronize(captured); },
             [&] { return api().event_elapsed_time(&ms, captured, captured); }}) {
        ok(user().stream_begin_capture(on_, cudaStreamCaptureModeRelaxed));
        ok(api().event_record(captured, on_));
        breaks(cuda_rule::captured_event_is_not_asked, ask(), cudaErrorCapturedEvent);
        end_spoilt(on_);
    }
    ok(api().event_record(captured, on_));
    ok(api().event_synchronize(captured));
}

TEST_F(cuda_captures, capturing_stream_is_not_asked) {
    for (const std::function<cudaError_t()> &ask : std::vector<std::function<cudaError_t()>>{
             [&] { return user().stream_query(on_); }, [&] { return user().stream_synchronize(on_); },
             [&] { return user().device_synchronize(); }}) {
        ok(user().stream_begin_capture(on_, cudaStreamCaptureModeRelaxed));
        breaks(cuda_rule::capturing_stream_is_not_asked, ask(), cudaErrorStreamCaptureUnsupported);
        end_spoilt(on_);
    }
}

TEST_F(cuda_captures, no_legacy_beside_a_blocking_capture) {
    const cudaStream_t blocking = stream(cudaStreamDefault);
    ok(api().event_record(eager_, other_));
    for (const std::function<cudaError_t()> &use : std::vector<std::function<cudaError_t()>>{
             [&] { return api().memcpy_async(there_, here_, k_bytes, cudaMemcpyHostToDevice, nullptr); },
             [&] { return api().event_record(event(), cudaStreamLegacy); },
             [&] { return api().stream_wait_event(nullptr, eager_, 0); },
             [&] { return user().launch_fill(nullptr, there_, k_bytes, 1); },
             [&] { return user().stream_synchronize(nullptr); },
             [&] { return user().memcpy(there_, here_, k_bytes, cudaMemcpyHostToDevice); }}) {
        ok(user().stream_begin_capture(blocking, cudaStreamCaptureModeRelaxed));
        // Relaxed on both sides: the conflict is there all the same.
        on_another_thread(
            [&] { breaks(cuda_rule::no_legacy_beside_a_blocking_capture, use(), cudaErrorStreamCaptureImplicit); });
        end_spoilt(blocking);
    }
    // A non-blocking stream has nothing to do with it.
    ok(user().stream_begin_capture(on_, cudaStreamCaptureModeRelaxed));
    ok(api().event_record(event(), nullptr));
    cudaGraph_t graph = nullptr;
    ok(user().stream_end_capture(on_, &graph));
}

TEST_F(cuda_captures, asking_legacy_spoils_nothing) {
    const cudaStream_t blocking = stream(cudaStreamDefault);
    ok(user().stream_begin_capture(blocking, cudaStreamCaptureModeGlobal));
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    fails(api().stream_get_capture_info(nullptr, &status, &id), cudaErrorStreamCaptureImplicit);
    fails(user().stream_is_capturing(cudaStreamLegacy, &status), cudaErrorStreamCaptureImplicit);
    ok(api().stream_get_capture_info(cudaStreamPerThread, &status, &id));
    EXPECT_EQ(status, cudaStreamCaptureStatusNone);
    cudaGraph_t graph = nullptr;
    ok(user().stream_end_capture(blocking, &graph));
    EXPECT_NE(graph, nullptr);
    ok(api().stream_get_capture_info(nullptr, &status, &id));
    EXPECT_EQ(status, cudaStreamCaptureStatusNone);
}

TEST_F(cuda_captures, capture_is_isolated) {
    ok(api().event_record(eager_, other_));
    ok(user().stream_synchronize(other_));  // also where it is long done
    for (const cudaEvent_t outside : {eager_, event()}) {
        ok(user().stream_begin_capture(on_, cudaStreamCaptureModeGlobal));
        breaks(cuda_rule::capture_is_isolated, api().stream_wait_event(on_, outside, 0),
               cudaErrorStreamCaptureIsolation);
        end_spoilt(on_);
    }
}

TEST_F(cuda_captures, waiting_joins_the_capture) {
    unsigned long long ids[2] = {};
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaGraph_t graph = capture(on_, [&] {
        ok(api().stream_get_capture_info(other_, &status, &ids[1]));
        EXPECT_EQ(status, cudaStreamCaptureStatusNone);
        order(other_, on_);
        ok(api().stream_get_capture_info(on_, &status, &ids[0]));
        EXPECT_EQ(status, cudaStreamCaptureStatusActive);
        ok(api().stream_get_capture_info(other_, &status, &ids[1]));
        EXPECT_EQ(status, cudaStreamCaptureStatusActive);
        EXPECT_EQ(ids[0], ids[1]);
        EXPECT_NE(ids[0], 0U);
        ok(user().launch_fill(other_, there_, k_bytes, 1));  // a node: nothing runs
        order(on_, other_);
    });
    EXPECT_EQ(status_of(other_), cudaStreamCaptureStatusNone);
    ok(user().stream_synchronize(other_));
    EXPECT_NE(wrong_words(there_, 1), 0U);
    ok(user().graph_launch(instantiated(graph), on_));
    ok(user().stream_synchronize(on_));
    EXPECT_EQ(wrong_words(there_, 1), 0U);
    // The next capture is another one.
    ok(user().stream_begin_capture(on_, cudaStreamCaptureModeGlobal));
    ok(api().stream_get_capture_info(on_, &status, &ids[1]));
    EXPECT_NE(ids[0], ids[1]);
    cudaGraph_t second = nullptr;
    ok(user().stream_end_capture(on_, &second));
}

TEST_F(cuda_captures, forks_are_joined) {
    const auto unjoined = [&](const std::function<void()> &body) {
        ok(user().stream_begin_capture(on_, cudaStreamCaptureModeGlobal));
        body();
        cudaGraph_t graph = nullptr;
        breaks(cuda_rule::forks_are_joined, user().stream_end_capture(on_, &graph), cudaErrorStreamCaptureUnjoined);
        EXPECT_EQ(graph, nullptr);
        EXPECT_EQ(status_of(other_), cudaStreamCaptureStatusNone);
    };
    unjoined([&] { order(other_, on_); });
    unjoined([&] {
        order(other_, on_);
        order(on_, other_);
        ok(user().launch_fill(other_, there_, k_bytes, 1));  // after it was joined
    });
    const cudaStream_t third = stream();
    unjoined([&] {
        order(other_, on_);
        order(third, other_);
        order(on_, other_);
    });
    (void)capture(on_, [&] {
        order(other_, on_);
        order(third, other_);
        order(other_, third);
        order(on_, other_);
    });
}

TEST_F(cuda_captures, captures_do_not_merge) {
    ok(user().stream_begin_capture(on_, cudaStreamCaptureModeRelaxed));
    ok(user().stream_begin_capture(other_, cudaStreamCaptureModeRelaxed));
    ok(api().event_record(eager_, other_));
    breaks(cuda_rule::captures_do_not_merge, api().stream_wait_event(on_, eager_, 0), cudaErrorStreamCaptureMerge);
    end_spoilt(on_);
    end_spoilt(other_);
}

TEST_F(cuda_captures, capture_ends_where_it_began) {
    const auto refused = [&](cudaStream_t where, cudaError_t expected) {
        cudaGraph_t graph = nullptr;
        breaks(cuda_rule::capture_ends_where_it_began, user().stream_end_capture(where, &graph), expected);
        EXPECT_EQ(graph, nullptr);
    };
    refused(on_, cudaErrorIllegalState);
    ok(user().stream_begin_capture(on_, cudaStreamCaptureModeThreadLocal));
    on_another_thread([&] { refused(on_, cudaErrorStreamCaptureWrongThread); });
    order(other_, on_);
    refused(other_, cudaErrorStreamCaptureUnmatched);
    end_spoilt(on_);
    ok(user().stream_begin_capture(on_, cudaStreamCaptureModeRelaxed));
    on_another_thread([&] {
        cudaGraph_t graph = nullptr;
        ok(user().stream_end_capture(on_, &graph));
    });
}

TEST_F(cuda_captures, capture_begins_once) {
    const auto refused = [&](cudaStream_t where, cudaError_t expected) {
        breaks(cuda_rule::capture_begins_once, user().stream_begin_capture(where, cudaStreamCaptureModeRelaxed),
               expected);
    };
    refused(nullptr, cudaErrorStreamCaptureUnsupported);
    refused(cudaStreamLegacy, cudaErrorStreamCaptureUnsupported);
    (void)capture(on_, [&] {
        refused(on_, cudaErrorIllegalState);
        order(other_, on_);
        refused(other_, cudaErrorIllegalState);
        order(on_, other_);
    });
    // Nor does it get into one by a wait.
    ok(user().stream_begin_capture(on_, cudaStreamCaptureModeRelaxed));
    ok(api().event_record(eager_, on_));
    breaks(cuda_rule::capture_begins_once, api().stream_wait_event(nullptr, eager_, 0),
           cudaErrorStreamCaptureUnsupported);
    end_spoilt(on_);
    (void)capture(cudaStreamPerThread, [] {});
}

TEST_F(cuda_captures, spoilt_capture_stays_spoilt) {
    ok(user().stream_begin_capture(on_, cudaStreamCaptureModeGlobal));
    order(other_, on_);
    const cudaEvent_t captured = event();
    ok(api().event_record(captured, on_));
    breaks(cuda_rule::unsafe_call_in_own_capture, api().event_query(eager_), cudaErrorStreamCaptureUnsupported);
    const cudaStream_t idle = [&] {
        cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
        ok(api().thread_exchange_stream_capture_mode(&mode));
        const cudaStream_t made = stream();
        ok(api().thread_exchange_stream_capture_mode(&mode));
        return made;
    }();
    for (const cudaStream_t member : {on_, other_}) {
        EXPECT_EQ(status_of(member), cudaStreamCaptureStatusInvalidated);
        fails(user().launch_fill(member, there_, k_bytes, 1), cudaErrorStreamCaptureInvalidated);
        fails(api().event_record(captured, member), cudaErrorStreamCaptureInvalidated);
        fails(api().stream_wait_event(member, captured, 0), cudaErrorStreamCaptureInvalidated);
    }
    fails(api().stream_wait_event(idle, captured, 0), cudaErrorInvalidValue);
    end_spoilt(on_);
    ok(user().launch_fill(other_, there_, k_bytes, 1));
}

TEST_F(cuda_captures, capture_is_over_at_its_end) {
    const cudaEvent_t captured = event();
    (void)capture(on_, [&] { ok(api().event_record(captured, on_)); });
    breaks(cuda_rule::capture_is_over_at_its_end, api().stream_wait_event(other_, captured, 0), cudaErrorCapturedEvent);
    breaks(cuda_rule::captured_event_is_not_asked, api().event_query(captured), cudaErrorCapturedEvent);
    ok(user().stream_begin_capture(on_, cudaStreamCaptureModeGlobal));
    breaks(cuda_rule::capture_is_over_at_its_end, api().stream_wait_event(on_, captured, 0), cudaErrorCapturedEvent);
    end_spoilt(on_);
    ok(api().event_record(captured, on_));
    ok(api().stream_wait_event(other_, captured, 0));
}

TEST_F(cuda_captures, capturing_stream_is_not_destroyed) {
    ok(user().stream_begin_capture(on_, cudaStreamCaptureModeGlobal));
    breaks(cuda_rule::capturing_stream_is_not_destroyed, api().stream_destroy(on_), cudaErrorStreamCaptureUnsupported);
    end_spoilt(on_);
    ok(api().stream_destroy(on_));
}

}  // namespace
}  // namespace ebb::test
