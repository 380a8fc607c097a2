// Rules about memory, copies and kernels.
#include <sys/mman.h>

#include <array>
#include <cstring>

#include "cuda_program.hpp"
#include "device/device.hpp"

namespace ebb::test {
namespace {

using cuda_rules = cuda_program;

TEST_F(cuda_rules, copy_direction_fits) {
    const cudaStream_t on = stream();
    uint64_t *there = device_memory();
    uint64_t *here = pinned_memory();
    const auto refused = [&](void *destination, const void *source, cudaMemcpyKind kind) {
        breaks(cuda_rule::copy_direction_fits, api().memcpy_async(destination, source, k_bytes, kind, on),
               cudaErrorInvalidValue);
    };
    refused(here, there, cudaMemcpyHostToDevice);
    refused(there, here, cudaMemcpyDeviceToHost);
    refused(there, here, cudaMemcpyDeviceToDevice);
    refused(here, there, cudaMemcpyHostToHost);
    ok(api().memcpy_async(there, here, k_bytes, cudaMemcpyHostToDevice, on));
    ok(api().memcpy_async(here, there, k_bytes, cudaMemcpyDefault, on));
}

TEST_F(cuda_rules, copy_stays_inside) {
    const cudaStream_t on = stream();
    uint64_t *there = device_memory();
    uint64_t *here = pinned_memory(2 * k_bytes);
    const auto refused = [&](cudaError_t error) { breaks(cuda_rule::copy_stays_inside, error, cudaErrorInvalidValue); };
    refused(api().memcpy_async(there, here, k_bytes + 1, cudaMemcpyHostToDevice, on));
    refused(api().memcpy_async(here, there + 1, k_bytes, cudaMemcpyDeviceToHost, on));
    refused(user().launch_fill(on, there + 1, k_bytes, 1));
}

TEST_F(cuda_rules, copy_in_one_registration) {
    const cudaStream_t on = stream();
    uint64_t *there = device_memory(2 * k_bytes);
    auto *range = static_cast<std::byte *>(
        ::mmap(nullptr, 3 * k_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ok(api().host_register(range, k_bytes, cudaHostRegisterDefault));
    ok(api().host_register(range + k_bytes, k_bytes, cudaHostRegisterDefault));
    const auto refused = [&](std::byte *from) {
        breaks(cuda_rule::copy_in_one_registration,
               api().memcpy_async(there, from, k_bytes, cudaMemcpyHostToDevice, on), cudaErrorInvalidValue);
    };
    refused(range + 8);
    ok(api().memcpy_async(there, range + k_bytes, k_bytes, cudaMemcpyHostToDevice, on));
    ok(user().stream_synchronize(on));
    ok(api().host_unregister(range));
    refused(range + k_bytes - 8);  // out of pageable memory into a registration
    ok(api().host_unregister(range + k_bytes));
    ::munmap(range, 3 * k_bytes);
}

TEST_F(cuda_rules, pageable_source_is_staged) {
    const cudaStream_t on = stream();
    uint64_t *there = device_memory();
    std::vector<uint64_t> here(k_bytes / sizeof(uint64_t));
    for (uint64_t word = 0; word < here.size(); ++word) {
        here[word] = filled_word(1, word);
    }
    uint32_t *gate = stand(on);
    ok(user().memcpy_async(there, here.data(), k_bytes, cudaMemcpyHostToDevice, on));
    std::fill(here.begin(), here.end(), 0);  // read in the call
    open(gate);
    ok(user().stream_synchronize(on));
    EXPECT_EQ(wrong_words(there, 1), 0U);
    // The backend does no such thing.
    ok(api().memcpy_async(there, here.data(), k_bytes, cudaMemcpyHostToDevice, on));
    broke(cuda_rule::pageable_source_is_staged);
}

TEST_F(cuda_rules, pageable_source_is_staged_once_the_stream_gets_there_if_it_is_large) {
    constexpr size_t k_large_bytes = 128 * 1024;
    const cudaStream_t on = stream();
    uint64_t *there = device_memory(k_large_bytes);
    std::vector<uint64_t> here(k_large_bytes / sizeof(uint64_t), 5);
    uint32_t *gate = stand(on);
    std::atomic<bool> returned{false};
    std::thread copying([&] {
        ok(user().memcpy_async(there, here.data(), k_large_bytes, cudaMemcpyHostToDevice, on));
        returned = true;
    });
    EXPECT_FALSE(returned);
    open(gate);
    copying.join();
    ok(user().stream_query(on));
}

TEST_F(cuda_rules, pageable_destination_blocks) {
    const cudaStream_t on = stream();
    uint64_t *there = device_memory();
    ok(user().launch_fill(on, there, k_bytes, 3));
    std::vector<uint64_t> here(k_bytes / sizeof(uint64_t));
    ok(user().memcpy_async(here.data(), there, k_bytes, cudaMemcpyDeviceToHost, on));
    EXPECT_EQ(here[7], filled_word(3, 7));  // done when it returns
    ok(api().memcpy_async(here.data(), there, k_bytes, cudaMemcpyDeviceToHost, on));
    broke(cuda_rule::pageable_destination_blocks);
}

TEST_F(cuda_rules, freed_memory_is_idle) {
    const cudaStream_t on = stream();
    const cudaEvent_t done = event();
    void *there = nullptr;
    void *here = nullptr;
    const auto copy = [&] {
        ok(api().malloc(&there, k_bytes));
        ok(api().host_alloc(&here, k_bytes, cudaHostAllocPortable));
        ok(api().memcpy_async(here, there, k_bytes, cudaMemcpyDeviceToHost, on));
        ok(api().event_record(done, on));
    };
    // It may be over by luck: nobody has asked.
    copy();
    ok(api().free(there));
    broke(cuda_rule::freed_memory_is_idle);
    ok(api().free_host(here));
    broke(cuda_rule::freed_memory_is_idle);
    copy();
    ok(api().event_synchronize(done));
    ok(api().free(there));
    ok(api().free_host(here));
    copy();
    while (api().event_query(done) != cudaSuccess) {
    }
    (void)api().get_last_error();
    ok(api().free(there));
    ok(api().free_host(here));
    // Another stream that waits for it, and is seen.
    copy();
    const cudaStream_t later = stream();
    ok(api().stream_wait_event(later, done, 0));
    ok(user().stream_synchronize(later));
    ok(api().free(there));
    ok(api().free_host(here));
}

TEST_F(cuda_rules, freed_once) {
    void *there = nullptr;
    void *here = nullptr;
    ok(api().malloc(&there, k_bytes));
    ok(api().host_alloc(&here, k_bytes, cudaHostAllocDefault));
    const auto refused = [&](cudaError_t error) { breaks(cuda_rule::freed_once, error, cudaErrorInvalidValue); };
    refused(api().free(here));
    refused(api().free_host(there));
    refused(api().free(static_cast<std::byte *>(there) + 512));
    ok(api().free(there));
    ok(api().free_host(here));
    refused(api().free(there));
    refused(api().free_host(here));
    ok(api().free(nullptr));
    ok(api().free_host(nullptr));
}

TEST_F(cuda_rules, registered_once) {
    alignas(64) std::array<std::byte, 4 * k_bytes> own{};
    const auto refused = [&](cudaError_t error, cudaError_t expected) {
        breaks(cuda_rule::registered_once, error, expected);
    };
    std::byte *first = own.data() + k_bytes;
    ok(api().host_register(first, k_bytes, cudaHostRegisterPortable));
    refused(api().host_register(first, k_bytes, cudaHostRegisterPortable), cudaErrorHostMemoryAlreadyRegistered);
    refused(api().host_register(own.data(), 2 * k_bytes, cudaHostRegisterPortable),
            cudaErrorHostMemoryAlreadyRegistered);
    refused(api().host_register(first + 64, k_bytes, cudaHostRegisterPortable), cudaErrorHostMemoryAlreadyRegistered);
    ok(api().host_register(own.data(), k_bytes, cudaHostRegisterPortable));
    ok(api().host_unregister(own.data()));
    ok(api().host_unregister(first));
    refused(api().host_unregister(first), cudaErrorHostMemoryNotRegistered);
    void *allocated = nullptr;
    ok(api().host_alloc(&allocated, k_bytes, cudaHostAllocDefault));
    refused(api().host_unregister(allocated), cudaErrorHostMemoryNotRegistered);
    ok(api().free_host(allocated));
}

class cuda_rules_on_host_page_tables : public cuda_program {
protected:
    cuda_rules_on_host_page_tables() : cuda_program(coherent()) {}

private:
    static cuda_double_options coherent() {
        cuda_double_options options;
        options.attributes[cudaDevAttrPageableMemoryAccess] = 1;
        options.attributes[cudaDevAttrPageableMemoryAccessUsesHostPageTables] = 1;
        return options;
    }
};

TEST_F(cuda_rules_on_host_page_tables, registering_may_pin_nothing) {
    const cudaStream_t on = stream();
    uint64_t *there = device_memory();
    std::vector<uint64_t> own(k_bytes / sizeof(uint64_t));
    ok(api().host_register(own.data(), k_bytes, cudaHostRegisterPortable));
    ok(api().memcpy_async(own.data(), there, k_bytes, cudaMemcpyDeviceToHost, on));
    broke(cuda_rule::pageable_destination_blocks);
    ok(api().host_unregister(own.data()));
    ok(api().memcpy_async(pinned_memory(), there, k_bytes, cudaMemcpyDeviceToHost, on));
    ok(user().launch_fill(on, own.data(), k_bytes, 1));  // kernels reach all memory
    ok(user().stream_synchronize(on));
}

TEST_F(cuda_rules, no_write_combined_memory) {
    void *here = nullptr;
    ok(api().host_alloc(&here, k_bytes, cudaHostAllocWriteCombined));
    broke(cuda_rule::no_write_combined_memory);
    ok(api().free_host(here));
}

TEST_F(cuda_rules, kernel_memory_is_reachable) {
    const cudaStream_t on = stream();
    uint64_t sum = 0;
    breaks(cuda_rule::kernel_memory_is_reachable,
           api().launch_checksum(on, device_memory(), k_bytes, &sum, device_memory(k_checksum_scratch_bytes)),
           cudaErrorInvalidValue);
}

TEST_F(cuda_rules, batch_has_attributes) {
    const cudaStream_t on = stream();
    uint64_t *here = pinned_memory(2 * k_bytes);
    uint64_t *there = device_memory(2 * k_bytes);
    constexpr size_t k_words = k_bytes / sizeof *here;
    void *destinations[] = {there, there + k_words};
    const void *sources[] = {here, here + k_words};
    const size_t sizes[] = {k_bytes, k_bytes};
    std::array<cudaMemcpyAttributes, 2> attributes{};
    std::array<size_t, 2> indices = {0, 1};
    const auto batch = [&](size_t count) {
        return api().memcpy_batch_async(destinations, sources, sizes, 2, attributes.data(), indices.data(), count, on);
    };
    const auto refused = [&](cudaError_t error) {
        breaks(cuda_rule::batch_has_attributes, error, cudaErrorInvalidValue);
    };
    refused(batch(1));  // no order given
    attributes[0].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    ok(batch(1));
    refused(batch(2));
    attributes[1].srcAccessOrder = cudaMemcpySrcAccessOrderAny;
    ok(batch(2));
    refused(batch(0));
    indices = {1, 1};
    refused(batch(1));
    indices = {0, 0};
    refused(batch(2));
}

class cuda_batches : public cuda_program {
protected:
    cudaError_t batch(cudaStream_t on, void *first, void *second, const void *from_first, const void *from_second) {
        void *destinations[] = {first, second};
        const void *sources[] = {from_first, from_second};
        const size_t sizes[] = {k_bytes, k_bytes};
        cudaMemcpyAttributes attributes{};
        attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
        size_t index = 0;
        return api().memcpy_batch_async(destinations, sources, sizes, 2, &attributes, &index, 1, on);
    }
    uint64_t *here_ = pinned_memory(2 * k_bytes);
    uint64_t *there_ = device_memory(2 * k_bytes);
    uint64_t *second_here_ = here_ + k_bytes / sizeof(uint64_t);
    uint64_t *second_there_ = there_ + k_bytes / sizeof(uint64_t);
};

TEST_F(cuda_batches, batch_not_on_legacy) {
    breaks(cuda_rule::batch_not_on_legacy, batch(nullptr, there_, second_there_, here_, second_here_),
           cudaErrorInvalidValue);
    breaks(cuda_rule::batch_not_on_legacy, batch(cudaStreamLegacy, there_, second_there_, here_, second_here_),
           cudaErrorInvalidValue);
    ok(batch(cudaStreamPerThread, there_, second_there_, here_, second_here_));
}

TEST_F(cuda_batches, batch_is_not_captured) {
    const cudaStream_t on = stream();
    ok(user().stream_begin_capture(on, cudaStreamCaptureModeGlobal));
    breaks(cuda_rule::batch_is_not_captured, batch(on, there_, second_there_, here_, second_here_),
           cudaErrorStreamCaptureUnsupported);
    end_spoilt(on);
}

// Half of the times the second copy comes first.
TEST_F(cuda_batches, batch_has_no_order) {
    const cudaStream_t on = stream();
    ok(user().launch_fill(on, there_, k_bytes, 1));
    int second_first = 0;
    constexpr int k_rounds = 40;
    for (int round = 0; round < k_rounds; ++round) {
        ok(user().memset_async(here_, 0, 2 * k_bytes, on));
        ok(batch(on, here_, second_there_, there_, here_));
        broke(cuda_rule::batch_has_no_order);
        ok(user().stream_synchronize(on));
        second_first += wrong_words(second_there_, 1) != 0 ? 1 : 0;
    }
    EXPECT_GT(second_first, 0);
    EXPECT_LT(second_first, k_rounds);
}

TEST_F(cuda_batches, a_batch_copies_and_may_be_missing) {
    const cudaStream_t on = stream();
    ok(user().launch_fill(on, here_, 2 * k_bytes, 4));
    ok(batch(on, there_, second_there_, here_, second_here_));
    ok(user().stream_synchronize(on));
    EXPECT_EQ(wrong_words(there_, 4, 2 * k_bytes), 0U);
    cuda_double_options without;
    without.has_batches = false;
    EXPECT_EQ(double_cuda_api(without).memcpy_batch_async, nullptr);
}

TEST_F(cuda_rules, memory_is_aligned_to_512_and_no_more_and_dirty) {
    const auto *there = reinterpret_cast<const unsigned char *>(device_memory());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(there) % 1024, 512U);
    const auto *here = reinterpret_cast<const unsigned char *>(pinned_memory());
    EXPECT_EQ(here[k_bytes - 1], 0xA5);
}

TEST_F(cuda_rules, checksums_are_those_of_the_device_interface) {
    const cudaStream_t on = stream();
    uint64_t *there = device_memory();
    uint64_t *here = pinned_memory();
    uint64_t *sum = pinned_memory(sizeof(uint64_t));
    *sum = 42;
    ok(user().launch_fill(on, there, k_bytes, 6));
    ok(api().launch_checksum(on, there, k_bytes - 3, sum, device_memory(k_checksum_scratch_bytes)));
    ok(api().memcpy_async(here, there, k_bytes, cudaMemcpyDeviceToHost, on));
    ok(user().stream_synchronize(on));
    EXPECT_EQ(*sum, checksum_bytes(42, here, k_bytes - 3));
}

TEST_F(cuda_rules, kernels_of_the_user_do_what_they_say) {
    const cudaStream_t on = stream();
    uint64_t *there = device_memory();
    uint64_t *here = pinned_memory();
    auto *wrong = reinterpret_cast<uint32_t *>(pinned_memory(8));
    *wrong = 0;
    ok(user().launch_fill(on, there, k_bytes, 6));
    ok(user().launch_compare(on, there, k_bytes, 6, wrong));
    ok(user().launch_add(on, there, k_bytes, 10));
    ok(user().launch_xor(on, there, k_bytes, 3));
    ok(user().memcpy_async(here, there, k_bytes, cudaMemcpyDeviceToHost, on));
    ok(user().stream_synchronize(on));
    EXPECT_EQ(*wrong, 0U);
    EXPECT_EQ(here[5], (filled_word(6, 5) + 10) ^ 3U);
    ok(user().launch_compare(on, there, k_bytes, 6, wrong));
    ok(user().device_synchronize());
    EXPECT_EQ(*wrong, k_bytes / sizeof *here);
    ok(user().memset_async(there, 1, k_bytes, on));
    ok(user().memcpy(here, there, k_bytes, cudaMemcpyDeviceToHost));
    broke(cuda_rule::shared_memory_is_ordered);  // the legacy stream does not wait for a non-blocking one
}

}  // namespace
}  // namespace ebb::test
