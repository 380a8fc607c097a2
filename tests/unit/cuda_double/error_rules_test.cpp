// Rules about errors, and the faults that a test can ask for.
#include <gtest/gtest-spi.h>

#include "cuda_program.hpp"

namespace ebb::test {
namespace {

using cuda_rules = cuda_program;

TEST_F(cuda_rules, last_error_is_kept) {
    void *data = nullptr;
    EXPECT_EQ(api().malloc(&data, size_t{1} << 50U), cudaErrorMemoryAllocation);
    on_another_thread([this] { EXPECT_EQ(api().get_last_error(), cudaSuccess); });
    ok(api().event_query(event()));  // a call that succeeds clears nothing
    EXPECT_EQ(api().peek_at_last_error(), cudaErrorMemoryAllocation);
    EXPECT_EQ(api().get_last_error(), cudaErrorMemoryAllocation);
    EXPECT_EQ(api().get_last_error(), cudaSuccess);
}

TEST_F(cuda_rules, no_error_is_left_behind) {
    const cudaStream_t on = stream();
    uint64_t *there = device_memory();
    uint32_t *gate = stand(on);
    const cudaEvent_t passed = event();
    ok(api().event_record(passed, on));
    EXPECT_EQ(api().event_query(passed), cudaErrorNotReady);
    ok(user().launch_fill(on, there, k_bytes, 1));
    broke(cuda_rule::no_error_is_left_behind);
    EXPECT_EQ(api().get_last_error(), cudaErrorNotReady);
    ok(user().launch_fill(on, there, k_bytes, 1));
    open(gate);
}

TEST_F(cuda_rules, broken_device_stays_broken) {
    const cudaStream_t on = stream();
    const cudaEvent_t recorded = event();
    uint64_t *there = device_memory();
    uint32_t *gate = stand(on);
    ok(user().launch_fill(on, there, k_bytes, 1));
    ok(api().event_record(recorded, on));
    cuda_.break_device(cudaErrorIllegalAddress);
    open(gate);
    void *data = nullptr;
    size_t size_bytes = 0;
    for (int again = 0; again < 2; ++again) {
        for (const cudaError_t error :
             {api().malloc(&data, 1), api().free(there), api().event_query(recorded), api().event_synchronize(recorded),
              api().event_record(recorded, on), api().stream_destroy(on), api().event_destroy(recorded),
              api().mem_get_info(&size_bytes, &size_bytes), user().stream_synchronize(on), user().device_synchronize(),
              api().get_last_error(), api().get_last_error(), api().peek_at_last_error()}) {
            EXPECT_EQ(error, cudaErrorIllegalAddress);
        }
    }
    int count = 0;
    ok(api().get_device_count(&count));
    ok(api().driver_get_version(&count));
    EXPECT_STREQ(api().get_error_name(cudaErrorIllegalAddress), "cudaErrorIllegalAddress");
}

TEST_F(cuda_rules, no_call_after_exit_began) {
    const cudaEvent_t recorded = event();
    cuda_.begin_exit();
    EXPECT_EQ(api().event_query(recorded), cudaErrorCudartUnloading);
    broke(cuda_rule::no_call_after_exit_began);
    (void)api().get_last_error();
    broke(cuda_rule::no_call_after_exit_began);
}

TEST_F(cuda_rules, all_is_given_back) {
    cudaStream_t left_stream = nullptr;
    cudaEvent_t left_event = nullptr;
    void *left_here = nullptr;
    void *left_there = nullptr;
    ok(api().stream_create_with_flags(&left_stream, cudaStreamNonBlocking));
    ok(api().event_create_with_flags(&left_event, cudaEventDisableTiming));
    ok(api().host_alloc(&left_here, k_bytes, cudaHostAllocDefault));
    ok(api().malloc(&left_there, k_bytes));
    cuda_.check_all_is_given_back();
    EXPECT_EQ(cuda_.take_misuses(cuda_rule::all_is_given_back), 4U);
    ok(api().stream_destroy(left_stream));
    ok(api().event_destroy(left_event));
    ok(api().free_host(left_here));
    ok(api().free(left_there));
    cuda_.check_all_is_given_back();
    EXPECT_EQ(cuda_.take_misuses(cuda_rule::all_is_given_back), 0U);
}

// ----------------------------------------------------------------------------------------------- what is asked --

TEST(cuda_faults, misuse_fails_the_test) {
    const auto program = [] {
        checked_cuda cuda;
        (void)cuda.user().stream_wait_event(nullptr, nullptr, 0);
    };
    EXPECT_NONFATAL_FAILURE(program(), "handles_are_alive");
}

TEST_F(cuda_rules, the_call_that_is_to_fail_fails_and_no_other) {
    void *data = nullptr;
    cuda_.fail_call({2, std::nullopt, cudaErrorUnknown, false});
    ok(api().malloc(&data, k_bytes));
    ok(api().free(data));
    EXPECT_TRUE(cuda_.failure_pending());
    fails(api().malloc(&data, k_bytes), cudaErrorUnknown);
    EXPECT_FALSE(cuda_.failure_pending());
    EXPECT_EQ(cuda_.failed_call(), cuda_call::malloc);
    cuda_.fail_call({1, cuda_call::free, cudaErrorUnknown, false});
    for (int round = 0; round < 2; ++round) {
        ok(api().malloc(&data, k_bytes));
        if (round == 0) {
            ok(api().free(data));
        }
    }
    fails(api().free(data), cudaErrorUnknown);
    cuda_.check_all_is_given_back();  // not to be blamed for what could not be given back
    EXPECT_EQ(cuda_.take_misuses(cuda_rule::all_is_given_back), 0U);
    EXPECT_EQ(cuda_.calls(cuda_call::malloc), 4U);
    EXPECT_EQ(cuda_.calls(cuda_call::free), 3U);
    EXPECT_EQ(cuda_.calls(), 7U);
    cuda_.fail_call({0, cuda_call::malloc, cudaErrorECCUncorrectable, true});
    EXPECT_EQ(api().malloc(&data, k_bytes), cudaErrorECCUncorrectable);
    EXPECT_EQ(api().get_last_error(), cudaErrorECCUncorrectable);
    EXPECT_EQ(user().device_synchronize(), cudaErrorECCUncorrectable);
}

TEST_F(cuda_rules, pinning_is_refused_beyond_a_limit) {
    cuda_.set_pinned_limit(2 * k_bytes);
    void *here = nullptr;
    void *more = nullptr;
    std::vector<std::byte> own(k_bytes);
    ok(api().host_alloc(&here, k_bytes, cudaHostAllocDefault));
    fails(api().host_alloc(&more, k_bytes + 1, cudaHostAllocDefault), cudaErrorMemoryAllocation);
    EXPECT_EQ(more, nullptr);
    ok(api().host_register(own.data(), k_bytes, cudaHostRegisterDefault));
    fails(api().host_register(&here, 1, cudaHostRegisterDefault), cudaErrorMemoryAllocation);
    ok(api().host_unregister(own.data()));
    ok(api().host_alloc(&more, k_bytes, cudaHostAllocDefault));
    ok(api().free_host(more));
    ok(api().free_host(here));
}

TEST(cuda_faults, drivers_that_are_missing_or_old_are_told) {
    cuda_double_options options;
    options.driver_version = 0;
    {
        const checked_cuda cuda(options);
        int count = -1;
        EXPECT_EQ(cuda.api().get_device_count(&count), cudaErrorInsufficientDriver);
        EXPECT_EQ(count, 0);
        EXPECT_EQ(cuda.api().push_device(0), cudaErrorInsufficientDriver);
        void *data = nullptr;
        EXPECT_EQ(cuda.api().malloc(&data, 1), cudaErrorInsufficientDriver);
    }
    options = {};
    options.devices = 0;
    {
        const checked_cuda cuda(options);
        int count = -1;
        EXPECT_EQ(cuda.api().get_device_count(&count), cudaErrorNoDevice);
    }
    options.devices = 3;
    options.attributes[cudaDevAttrIntegrated] = 1;
    const checked_cuda cuda(options);
    int count = 0;
    int value = 0;
    EXPECT_EQ(cuda.api().get_device_count(&count), cudaSuccess);
    EXPECT_EQ(count, 3);
    EXPECT_EQ(cuda.api().device_get_attribute(&value, cudaDevAttrIntegrated, 2), cudaSuccess);
    EXPECT_EQ(value, 1);
    EXPECT_EQ(cuda.api().device_get_attribute(&value, cudaDevAttrIntegrated, 3), cudaErrorInvalidDevice);
    char id[16] = {};
    EXPECT_EQ(cuda.api().device_get_pci_bus_id(id, sizeof id, 1), cudaSuccess);
    EXPECT_STREQ(id, "0000:02:00.0");
}

}  // namespace
}  // namespace ebb::test
