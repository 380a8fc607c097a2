// Rules about events.
#include "cuda_program.hpp"

namespace ebb::test {
namespace {

using cuda_rules = cuda_program;

// A program that takes the wait for one of the second record reads before that was written.
TEST_F(cuda_rules, wait_means_the_latest_record) {
    const cudaStream_t writer = stream();
    const cudaStream_t reader = stream();
    uint64_t *data = device_memory();
    const cudaEvent_t written = event();
    ok(api().event_record(written, writer));
    ok(api().stream_wait_event(reader, written, 0));
    uint32_t *gate = stand(writer);
    ok(user().launch_fill(writer, data, k_bytes, 1));
    ok(api().event_record(written, writer));
    ok(user().launch_add(reader, data, k_bytes, 0));
    broke(cuda_rule::shared_memory_is_ordered);
    EXPECT_EQ(user().stream_query(writer), cudaErrorNotReady);
    ok(user().stream_synchronize(reader));  // it did not wait for what stands
    open(gate);
    EXPECT_EQ(api().get_last_error(), cudaErrorNotReady);
}

TEST_F(cuda_rules, wait_means_the_latest_record_and_the_right_wait_is_no_misuse) {
    const cudaStream_t writer = stream();
    const cudaStream_t reader = stream();
    uint64_t *data = device_memory();
    uint32_t *gate = stand(writer);
    ok(user().launch_fill(writer, data, k_bytes, 1));
    order(reader, writer);
    ok(user().launch_fill(reader, data, k_bytes, 2));
    open(gate);
    ok(user().stream_synchronize(reader));
    EXPECT_EQ(wrong_words(data, 2), 0U);
}

TEST_F(cuda_rules, wait_needs_a_record) {
    ok(api().stream_wait_event(stream(), event(), 0));
    broke(cuda_rule::wait_needs_a_record);
}

TEST_F(cuda_rules, query_tells_not_ready) {
    const cudaStream_t on = stream();
    const cudaEvent_t passed = event();
    ok(api().event_query(passed));  // nothing to wait for
    uint32_t *gate = stand(on);
    ok(api().event_record(passed, on));
    fails(api().event_query(passed), cudaErrorNotReady);
    open(gate);
    ok(api().event_synchronize(passed));
    ok(api().event_query(passed));
}

TEST_F(cuda_rules, elapsed_needs_timing) {
    const cudaStream_t on = stream();
    const cudaEvent_t start = event(cudaEventDefault);
    const cudaEvent_t end = event(cudaEventDefault);
    const cudaEvent_t plain = event();
    float ms = 0;
    ok(api().event_record(start, on));
    breaks(cuda_rule::elapsed_needs_timing, api().event_elapsed_time(&ms, start, end), cudaErrorInvalidResourceHandle);
    ok(api().event_record(plain, on));
    breaks(cuda_rule::elapsed_needs_timing, api().event_elapsed_time(&ms, start, plain),
           cudaErrorInvalidResourceHandle);
    uint32_t *gate = stand(on);
    ok(api().event_record(end, on));
    fails(api().event_elapsed_time(&ms, start, end), cudaErrorNotReady);
    open(gate);
    ok(api().event_synchronize(end));
    ok(api().event_elapsed_time(&ms, start, end));
    EXPECT_GT(ms, 0.0F);
}

TEST_F(cuda_rules, destroyed_event_keeps_its_waits) {
    const cudaStream_t writer = stream();
    const cudaStream_t reader = stream();
    uint64_t *data = device_memory();
    uint32_t *gate = stand(writer);
    ok(user().launch_fill(writer, data, k_bytes, 1));
    cudaEvent_t written = nullptr;
    ok(api().event_create_with_flags(&written, cudaEventDisableTiming));
    ok(api().event_record(written, writer));
    ok(api().stream_wait_event(reader, written, 0));
    ok(api().event_destroy(written));
    ok(user().launch_fill(reader, data, k_bytes, 2));
    fails(user().stream_query(reader), cudaErrorNotReady);
    open(gate);
    ok(user().stream_synchronize(reader));
    EXPECT_EQ(wrong_words(data, 2), 0U);
}

TEST_F(cuda_rules, handles_are_alive) {
    const cudaStream_t on = stream();
    const cudaEvent_t gone = event();
    ok(api().event_destroy(gone));
    const cudaStream_t gone_stream = stream();
    ok(api().stream_destroy(gone_stream));
    const auto refused = [&](cudaError_t error, cudaError_t expected = cudaErrorInvalidResourceHandle) {
        breaks(cuda_rule::handles_are_alive, error, expected);
    };
    float ms = 0;
    refused(api().event_record(gone, on));
    refused(api().event_query(gone));
    refused(api().event_synchronize(gone));
    refused(api().event_destroy(gone));
    refused(api().event_elapsed_time(&ms, gone, gone));
    refused(api().stream_wait_event(on, gone, 0));
    refused(api().event_record(event(), gone_stream));
    refused(api().stream_destroy(gone_stream));
    refused(user().stream_synchronize(gone_stream));
    refused(user().launch_fill(gone_stream, device_memory(), k_bytes, 1));
    refused(user().graph_destroy(nullptr), cudaErrorInvalidValue);
    refused(user().graph_launch(nullptr, on), cudaErrorInvalidValue);
}

class cuda_rules_on_two_devices : public cuda_program {
protected:
    cuda_rules_on_two_devices() : cuda_program(two()) {}

private:
    static cuda_double_options two() {
        cuda_double_options options;
        options.devices = 2;
        return options;
    }
};

TEST_F(cuda_rules_on_two_devices, event_on_the_streams_device) {
    const cudaStream_t first = stream();
    const cudaEvent_t of_first = event();
    ok(user().set_device(1));
    const cudaStream_t second = stream();
    breaks(cuda_rule::event_on_the_streams_device, api().event_record(of_first, second),
           cudaErrorInvalidResourceHandle);
    uint32_t *gate = stand(second);
    const cudaEvent_t of_second = event();
    ok(api().event_record(of_second, second));
    ok(api().stream_wait_event(first, of_second, 0));  // across devices
    ok(api().event_record(of_first, first));
    fails(api().event_query(of_first), cudaErrorNotReady);
    open(gate);
    ok(api().event_synchronize(of_first));
    // Stream 0 is the current device's.
    breaks(cuda_rule::event_on_the_streams_device, api().event_record(of_first, nullptr),
           cudaErrorInvalidResourceHandle);
}

TEST_F(cuda_rules_on_two_devices, memory_of_the_current_device) {
    size_t free_bytes[2] = {};
    size_t total_bytes = 0;
    ok(user().set_device(1));
    ok(user().device_synchronize());
    on_another_thread([] {
        int ordinal = 1;
        ok(user().get_device(&ordinal));
        EXPECT_EQ(ordinal, 0) << "a thread's device is its own";
    });
    void *data = nullptr;
    ok(api().malloc(&data, k_bytes));
    ok(api().mem_get_info(&free_bytes[1], &total_bytes));
    ok(api().push_device(0));
    ok(api().mem_get_info(&free_bytes[0], &total_bytes));
    ok(api().pop_device());
    EXPECT_EQ(free_bytes[0], total_bytes);
    EXPECT_EQ(free_bytes[1], total_bytes - k_bytes);
    ok(api().free(data));
}

TEST_F(cuda_rules_on_two_devices, kernel_on_the_current_device) {
    const cudaStream_t first = stream();
    uint64_t *data = device_memory();
    ok(user().set_device(1));
    breaks(cuda_rule::kernel_on_the_current_device, user().launch_fill(first, data, k_bytes, 1),
           cudaErrorInvalidResourceHandle);
    ok(api().push_device(0));
    ok(api().launch_checksum(first, data, k_bytes, pinned_memory(), device_memory(k_checksum_scratch_bytes)));
    ok(api().pop_device());
}

TEST_F(cuda_rules_on_two_devices, current_device_is_left_alone) {
    ok(api().push_device(1));
    breaks(cuda_rule::current_device_is_left_alone, user().launch_fill(nullptr, device_memory(), k_bytes, 1),
           cudaSuccess);
    ok(api().pop_device());
    int ordinal = 1;
    ok(user().get_device(&ordinal));
    EXPECT_EQ(ordinal, 0);
    EXPECT_EQ(api().pop_device(), cudaErrorDeviceUninitialized);
    broke(cuda_rule::current_device_is_left_alone);
}

TEST_F(cuda_rules_on_two_devices, a_device_is_in_use_once_it_is_set) {
    int in_use = 1;
    ok(api().device_in_use(1, &in_use));
    EXPECT_EQ(in_use, 0);
    ok(user().set_device(1));
    ok(api().device_in_use(1, &in_use));
    EXPECT_EQ(in_use, 1);
}

// A thread that never said which device it means has the first one.
TEST(cuda_contexts, no_context_comes_to_life) {
    cuda_double_options options;
    options.devices = 2;
    checked_cuda cuda(options);
    cudaEvent_t of_second = nullptr;
    EXPECT_EQ(cuda.user().set_device(1), cudaSuccess);
    EXPECT_EQ(cuda.user().event_create_with_flags(&of_second, cudaEventDisableTiming), cudaSuccess);
    const auto in_use = [&](int ordinal) {
        int answer = 0;
        EXPECT_EQ(cuda.api().device_in_use(ordinal, &answer), cudaSuccess);
        return answer != 0;
    };
    std::thread([&] {
        EXPECT_EQ(cuda.api().push_device(1), cudaSuccess);
        EXPECT_EQ(cuda.api().event_query(of_second), cudaSuccess);
        EXPECT_EQ(cuda.api().pop_device(), cudaSuccess);
        EXPECT_FALSE(in_use(0));
        EXPECT_EQ(cuda.api().event_query(of_second), cudaSuccess);
        EXPECT_TRUE(in_use(0));
    }).join();
    cuda.expect_misuse(cuda_rule::no_context_comes_to_life);
}

}  // namespace
}  // namespace ebb::test
