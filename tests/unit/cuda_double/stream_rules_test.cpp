// Rules about streams and the orders between them.
#include "cuda_program.hpp"

namespace ebb::test {
namespace {

using cuda_rules = cuda_program;

TEST_F(cuda_rules, shared_memory_is_ordered) {
    const cudaStream_t first = stream();
    const cudaStream_t second = stream();
    uint64_t *data = device_memory();
    uint64_t *host = pinned_memory();
    ok(user().launch_fill(first, data, k_bytes, 1));
    // Found although the first stream is long done: nothing says so.
    ok(user().stream_synchronize(second));
    ok(api().memcpy_async(host, data, k_bytes, cudaMemcpyDeviceToHost, second));
    broke(cuda_rule::shared_memory_is_ordered);
    // Reading together is fine, and so is what the host has seen the end of.
    ok(api().memcpy_async(pinned_memory(), data, k_bytes, cudaMemcpyDeviceToHost, first));
    ok(user().stream_synchronize(first));
    ok(user().stream_synchronize(second));
    ok(user().launch_fill(second, data, k_bytes, 2));
    // Other bytes of the same memory too.
    ok(user().launch_fill(first, host, k_bytes / 2, 1));
    ok(user().launch_fill(second, host + k_bytes / 2 / sizeof *host, k_bytes / 2, 1));
    // The host's copy in between: the device's order goes on through it.
    ok(user().launch_add(first, host, k_bytes, 1));
    broke(cuda_rule::shared_memory_is_ordered);
}

TEST_F(cuda_rules, legacy_waits_for_blocking_streams) {
    const cudaStream_t blocking = stream(cudaStreamDefault);
    uint64_t *data = device_memory();
    uint32_t *gate = stand(blocking);
    ok(user().launch_fill(blocking, data, k_bytes, 1));
    ok(user().launch_fill(cudaStreamLegacy, data, k_bytes, 2));
    fails(user().stream_query(nullptr), cudaErrorNotReady);
    open(gate);
    ok(user().stream_synchronize(nullptr));
    EXPECT_EQ(wrong_words(data, 2), 0U);
}

TEST_F(cuda_rules, blocking_streams_wait_for_legacy) {
    const cudaStream_t blocking = stream(cudaStreamDefault);
    const cudaStream_t other = stream(cudaStreamDefault);
    uint64_t *data = device_memory();
    uint32_t *gate = stand(nullptr);
    ok(user().launch_fill(nullptr, data, k_bytes, 1));
    ok(user().launch_fill(blocking, data, k_bytes, 2));
    fails(user().stream_query(blocking), cudaErrorNotReady);
    // A wait of the legacy stream holds others up as well.
    const cudaStream_t apart = stream();
    uint32_t *second_gate = stand(apart);
    order(nullptr, apart);
    uint64_t *own = device_memory();
    ok(user().launch_fill(other, own, k_bytes, 3));
    open(gate);
    ok(user().stream_synchronize(blocking));
    fails(user().stream_query(other), cudaErrorNotReady);
    open(second_gate);
    ok(user().stream_synchronize(other));
    EXPECT_EQ(wrong_words(data, 2), 0U);
}

TEST_F(cuda_rules, non_blocking_streams_are_apart) {
    const cudaStream_t apart = stream(cudaStreamNonBlocking);
    uint64_t *data = device_memory();
    uint32_t *gate = stand(nullptr);
    ok(user().launch_fill(nullptr, data, k_bytes, 1));
    ok(user().launch_fill(apart, data, k_bytes, 2));
    broke(cuda_rule::shared_memory_is_ordered);
    ok(user().stream_synchronize(apart));  // although the legacy stream stands
    open(gate);
}

TEST_F(cuda_rules, per_thread_stream_is_each_threads) {
    uint32_t *gate = stand(cudaStreamPerThread);
    fails(user().stream_query(cudaStreamPerThread), cudaErrorNotReady);
    on_another_thread([] { ok(user().stream_query(cudaStreamPerThread)); });
    uint64_t *data = device_memory();
    ok(user().launch_fill(nullptr, data, k_bytes, 1));
    fails(user().stream_query(nullptr), cudaErrorNotReady);
    open(gate);
    ok(user().stream_synchronize(nullptr));
}

TEST_F(cuda_rules, destroyed_stream_finishes) {
    uint64_t *data = device_memory();
    const cudaStream_t gone = stream();
    const cudaEvent_t last = event();
    uint32_t *gate = stand(gone);
    ok(user().launch_fill(gone, data, k_bytes, 1));
    ok(api().event_record(last, gone));
    ok(api().stream_destroy(gone));  // does not wait
    EXPECT_NE(stream(), gone);
    fails(api().event_query(last), cudaErrorNotReady);
    open(gate);
    ok(api().event_synchronize(last));
    EXPECT_EQ(wrong_words(data, 1), 0U);
}

TEST_F(cuda_rules, destroyed_stream_finishes_also_a_thousand_times) {
    uint64_t *data = device_memory();
    const cudaEvent_t last = event();
    for (int round = 0; round < 1000; ++round) {
        cudaStream_t made = nullptr;
        ok(api().stream_create_with_flags(&made, cudaStreamNonBlocking));
        if (round > 0) {
            ok(api().stream_wait_event(made, last, 0));
        }
        ok(user().launch_fill(made, data, k_bytes, static_cast<uint64_t>(round)));
        ok(api().event_record(last, made));
        ok(api().stream_destroy(made));
    }
    ok(api().event_synchronize(last));
    EXPECT_EQ(wrong_words(data, 999), 0U);
}

}  // namespace
}  // namespace ebb::test
