// What the CUDA device asks of CUDA and what it says: on functions that answer and do nothing. What runs on streams is
// tested by the contract suite on the double.
#include "device/cuda/cuda_device.hpp"

#include <gtest/gtest.h>

#include <array>

#include "fake_cuda.hpp"
#include "fake_system.hpp"

namespace ebb {
namespace {

constexpr uint64_t k_mib = 1ULL << 20U;

class cuda_device_calls : public ::testing::Test {
protected:
    cuda_device_calls() { options_.system_root = system_.root(); }
    cuda_device &open() {
        result<std::unique_ptr<cuda_device>> made = cuda_device::make(cuda_.api, 0, options_);
        EXPECT_TRUE(made.ok()) << made.why().text();
        device_ = std::move(made).value();
        return *device_;
    }
    // Calls of CUDA that a function of ours makes.
    template <class Call>
    int calls_of(const Call &call) {
        const int before = cuda_.all_calls;
        const status done = call();
        EXPECT_TRUE(done.ok()) << done.text();
        return cuda_.all_calls - before;
    }

    fake_cuda cuda_;
    fake_system system_;
    cuda_device_options options_;
    std::unique_ptr<cuda_device> device_;
    const stream_id callers_{uint64_t{0x7F0012345678}};
    std::array<char, 64> here_{};
    std::array<char, 64> there_{};
};

TEST_F(cuda_device_calls, says_what_it_is) {
    cuda_.attributes[cudaDevAttrIntegrated] = 1;
    cuda_device &dev = open();
    EXPECT_EQ(dev.info().name, "cuda");
    EXPECT_EQ(dev.info().type, memory_type::cuda);
    EXPECT_TRUE(dev.info().integrated);
    EXPECT_EQ(dev.info().default_chunk_bytes, 24 * k_mib);
    EXPECT_EQ(dev.info().slab_bytes, 1024 * k_mib);
    EXPECT_EQ(dev.info().measured_link.d2h_bytes_per_second, 0U);
    EXPECT_EQ(dev.statistics().model, "Fake GPU");
    EXPECT_FALSE(dev.statistics().coherent);
    EXPECT_TRUE(dev.notes().empty());
    cuda_.attributes[cudaDevAttrPageableMemoryAccessUsesHostPageTables] = 1;
    cuda_.attributes[cudaDevAttrComputeCapabilityMajor] = 10;
    cuda_device &grace = open();
    EXPECT_TRUE(grace.statistics().coherent);
    EXPECT_EQ(grace.info().default_chunk_bytes, 64 * k_mib);
}

TEST_F(cuda_device_calls, calibrated_chunks_follow_what_was_measured) {
    forget_measured_link_rates();
    options_.calibrate = true;
    options_.calibration_bytes = 4 * k_mib;
    cuda_.elapsed_milliseconds = 0.4F;  // 8 MiB: 21 GB/s
    cuda_device &dev = open();
    EXPECT_EQ(dev.info().measured_link.h2d_bytes_per_second / 1'000'000'000, 20U);
    EXPECT_EQ(dev.info().default_chunk_bytes, 9 * k_mib);
    EXPECT_TRUE(dev.notes().empty());
    forget_measured_link_rates();
    cuda_.failures["event_elapsed_time"] = cudaErrorInvalidValue;
    cuda_device &other = open();
    EXPECT_EQ(other.info().default_chunk_bytes, 24 * k_mib);
    ASSERT_EQ(other.notes().size(), 1U);
    EXPECT_NE(other.notes()[0].find("was not measured"), std::string::npos) << other.notes()[0];
    forget_measured_link_rates();
}

TEST_F(cuda_device_calls, ordinals_that_are_none_are_refused_with_the_number) {
    cuda_.devices = 2;
    for (const int32_t ordinal : {-1, 2}) {
        const status why = cuda_device::make(cuda_.api, ordinal, options_).why();
        EXPECT_EQ(why.code(), code::invalid_argument);
        EXPECT_NE(why.text().find("sees 2 CUDA devices"), std::string::npos) << why.text();
    }
}

TEST_F(cuda_device_calls, a_call_on_a_stream_is_one_call_of_cuda) {
    cuda_device &dev = open();
    const stream_id ours = dev.create_stream(stream_role::d2h).value();
    const event_id event = dev.create_event(event_kind::plain).value();
    for (const stream_id stream : {ours, callers_}) {
        EXPECT_EQ(calls_of([&] { return dev.copy(stream, copy_direction::d2h, here_.data(), there_.data(), 64); }), 1);
        EXPECT_EQ(calls_of([&] { return dev.record_event(event, stream); }), 1);
        EXPECT_EQ(calls_of([&] { return dev.wait_event(stream, event); }), 1);
        EXPECT_EQ(calls_of([&] { return dev.capture_of(stream).why(); }), 1);
        EXPECT_EQ(calls_of([&] { return dev.check_stream(stream); }), 0);
    }
    EXPECT_EQ(calls_of([&] { return dev.event_done(event).why(); }), 1);  // and two of the capture mode
    // The current device's streams: made current, and put back.
    for (const uint64_t number : {uint64_t{0}, uint64_t{1}, uint64_t{2}}) {
        EXPECT_EQ(calls_of([&] { return dev.record_event(event, stream_id{number}); }), 3) << number;
        EXPECT_TRUE(cuda_.pushed.empty());
    }
    EXPECT_EQ(cuda_.mode, cudaStreamCaptureModeGlobal);
}

TEST_F(cuda_device_calls, small_pieces_go_in_batches_where_there_are_batches) {
    cuda_device &dev = open();
    std::vector<char> memory(4 * k_mib);
    std::vector<char> other(4 * k_mib);
    std::vector<copy_piece> pieces;
    for (size_t i = 0; i < 130; ++i) {
        pieces.push_back({&memory[i * 64], &other[i * 64], 64});
    }
    const auto copy = [&](stream_id stream, uint32_t count) {
        cuda_.batches.clear();
        cuda_.copies_on.clear();
        const status done = dev.copy_pieces(stream, copy_direction::h2d, pieces.data(), count);
        EXPECT_TRUE(done.ok()) << done.text();
        return std::pair{cuda_.batches, cuda_.copies_on.size()};
    };
    using batches = std::vector<size_t>;
    EXPECT_EQ(copy(callers_, 130), (std::pair{batches{64, 64, 2}, size_t{0}}));
    EXPECT_EQ(copy(stream_id{2}, 3), (std::pair{batches{3}, size_t{0}}));
    EXPECT_EQ(copy(callers_, 1), (std::pair{batches{}, size_t{1}}));
    // The legacy stream has none, nor has a capture, nor are they for large pieces.
    EXPECT_EQ(copy(stream_id{0}, 3), (std::pair{batches{}, size_t{3}}));
    EXPECT_EQ(copy(stream_id{1}, 3), (std::pair{batches{}, size_t{3}}));
    cuda_.capture = cudaStreamCaptureStatusActive;
    EXPECT_EQ(copy(callers_, 3), (std::pair{batches{}, size_t{3}}));
    cuda_.capture = cudaStreamCaptureStatusNone;
    pieces[1].size_bytes = 0;
    EXPECT_EQ(copy(callers_, 3), (std::pair{batches{}, size_t{2}}));
    pieces[1] = {&memory[2 * k_mib], &other[2 * k_mib], k_mib + 1};
    EXPECT_EQ(copy(callers_, 2), (std::pair{batches{}, size_t{2}}));
    pieces[1] = {&memory[2 * k_mib], &memory[2 * k_mib], 64};
    EXPECT_EQ(dev.copy_pieces(callers_, copy_direction::d2d, pieces.data(), 2).code(), code::invalid_argument);
    cuda_.api.memcpy_batch_async = nullptr;
    pieces[1] = {&memory[64], &other[64], 64};
    EXPECT_EQ(copy(callers_, 3), (std::pair{batches{}, size_t{3}}));
}

TEST_F(cuda_device_calls, captures_have_ids_and_a_spoilt_one_is_named) {
    cuda_device &dev = open();
    EXPECT_EQ(dev.capture_of(callers_).value(), capture_id::none);
    cuda_.capture = cudaStreamCaptureStatusActive;
    EXPECT_EQ(dev.capture_of(callers_).value(), capture_id{7});
    cuda_.capture = cudaStreamCaptureStatusInvalidated;
    const status why = dev.capture_of(callers_).why();
    EXPECT_EQ(why.code(), code::wrong_state);
    EXPECT_NE(why.text().find("given up"), std::string::npos) << why.text();
    cuda_.failures["stream_get_capture_info"] = cudaErrorStreamCaptureImplicit;
    EXPECT_EQ(dev.capture_of(stream_id{1}).why().code(), code::wrong_state);
}

TEST_F(cuda_device_calls, an_error_has_its_name_the_call_and_what_it_was_for) {
    cuda_device &dev = open();
    cuda_.failures["memcpy_async"] = cudaErrorInvalidValue;
    const status why = dev.copy(callers_, copy_direction::d2h, here_.data(), there_.data(), 48);
    EXPECT_EQ(why.code(), code::device_error);
    for (const char *part :
         {"48 bytes from the device", "stream 139638282147448", "cudaMemcpyAsync", "cudaErrorOther"}) {
        EXPECT_NE(why.text().find(part), std::string::npos) << part << " in: " << why.text();
    }
    EXPECT_EQ(cuda_.last_error, cudaSuccess) << "not left to the caller";
    cuda_.failures.clear();
    EXPECT_TRUE(dev.copy(callers_, copy_direction::d2h, here_.data(), there_.data(), 48).ok());
}

TEST_F(cuda_device_calls, the_callers_own_error_stays_his) {
    cuda_device &dev = open();
    const event_id event = dev.create_event(event_kind::plain).value();
    cuda_.api.event_query = [](cudaEvent_t) { return cudaErrorNotReady; };  // which the runtime may or may not keep
    cuda_.last_error = cudaErrorInvalidConfiguration;
    EXPECT_FALSE(dev.event_done(event).value());
    EXPECT_EQ(cuda_.last_error, cudaErrorInvalidConfiguration);
    cuda_.last_error = cudaErrorNotReady;
    EXPECT_FALSE(dev.event_done(event).value());
    EXPECT_EQ(cuda_.last_error, cudaSuccess);
}

TEST_F(cuda_device_calls, after_a_sticky_error_nothing_is_called_and_all_is_given_back) {
    cuda_device &dev = open();
    const stream_id stream = dev.create_stream(stream_role::h2d).value();
    const event_id event = dev.create_event(event_kind::timed).value();
    void *block = dev.alloc_device(4096).value();
    void *mapped = dev.map_host(4096).value();
    ASSERT_TRUE(dev.record_event(event, stream).ok());
    cuda_.failures["event_query"] = cudaErrorIllegalAddress;
    const status first = dev.event_done(event).why();
    EXPECT_EQ(first.code(), code::device_error);
    const int calls = cuda_.all_calls;
    for (const status &later :
         {dev.copy(stream, copy_direction::d2h, here_.data(), there_.data(), 64), dev.record_event(event, stream),
          dev.wait_event(stream, event), dev.synchronize_event(event), dev.event_done(event).why(),
          dev.elapsed_ns(event, event).why(), dev.create_event(event_kind::plain).why(),
          dev.create_stream(stream_role::h2d).why(), dev.alloc_device(64).why(), dev.map_host(64).why(),
          dev.capture_of(stream).why(), dev.checksum(stream, here_.data(), 64, reinterpret_cast<uint64_t *>(mapped))}) {
        EXPECT_EQ(later.code(), code::device_error);
        EXPECT_NE(later.text().find("cudaEventQuery failed with cudaErrorIllegalAddress"), std::string::npos)
            << later.text();
    }
    EXPECT_TRUE(dev.destroy_event(event).ok());
    EXPECT_TRUE(dev.destroy_stream(stream).ok());
    EXPECT_TRUE(dev.free_device(block, 4096).ok());
    EXPECT_TRUE(dev.unmap_host(mapped, 4096).ok());
    EXPECT_EQ(dev.memory().free_bytes, 0U);
    EXPECT_EQ(dev.destroy_event(event).code(), code::invalid_argument);
    device_.reset();
    EXPECT_EQ(cuda_.all_calls, calls);
}

TEST_F(cuda_device_calls, an_error_that_does_not_stick_is_over) {
    cuda_device &dev = open();
    cuda_.failures["malloc"] = cudaErrorMemoryAllocation;
    const status why = dev.alloc_device(k_mib).why();
    EXPECT_EQ(why.code(), code::out_of_device_memory);
    for (const char *part : {"1048576 bytes wanted", "0 bytes held", "536870912 bytes free of 1073741824"}) {
        EXPECT_NE(why.text().find(part), std::string::npos) << part << " in: " << why.text();
    }
    EXPECT_EQ(cuda_.last_error, cudaSuccess);
    cuda_.failures.clear();
    EXPECT_TRUE(dev.alloc_device(k_mib).ok());
}

TEST_F(cuda_device_calls, device_memory_is_aligned_whatever_cuda_gives) {
    cuda_.misalign_bytes = 256;
    cuda_device &dev = open();
    void *block = dev.alloc_device(1000).value();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 512, 0U);
    EXPECT_GE(cuda_.taken_bytes, 1000U + 256U) << "the block's end is moved too";
    EXPECT_TRUE(dev.free_device(block, 1000).ok());
    device_.reset();
    EXPECT_EQ(cuda_.calls["malloc"], cuda_.calls["free"]);
}

TEST_F(cuda_device_calls, what_is_left_is_given_back_at_the_end) {
    cuda_device &dev = open();
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(dev.create_stream(stream_role::join).ok());
        ASSERT_TRUE(dev.create_event(event_kind::plain).ok());
        ASSERT_TRUE(dev.alloc_device(64).ok());
        ASSERT_TRUE(dev.map_host(64).ok());
    }
    device_.reset();
    for (const auto &[taken, given] : {std::pair{"malloc", "free"},
                                       {"host_register", "host_unregister"},
                                       {"stream_create_with_flags", "stream_destroy"},
                                       {"event_create_with_flags", "event_destroy"},
                                       {"push_device", "pop_device"}}) {
        EXPECT_GT(cuda_.calls[taken], 0) << taken;
        EXPECT_EQ(cuda_.calls[taken], cuda_.calls[given]) << taken;
    }
}

// Each failing call of make, one after the other: an error, and nothing left behind.
TEST_F(cuda_device_calls, whatever_fails_while_it_is_made_leaves_nothing_behind) {
    for (const char *function : {"get_device_count", "device_get_attribute", "device_get_name", "device_get_pci_bus_id",
                                 "push_device", "malloc", "event_create_with_flags"}) {
        cuda_.calls.clear();
        cuda_.failures = {{function, cudaErrorInvalidValue}};
        const status why = cuda_device::make(cuda_.api, 0, options_).why();
        EXPECT_FALSE(why.ok()) << function;
        cuda_.failures.clear();
        // What failed gave nothing.
        for (const auto &[taken, given] : {std::pair{"malloc", "free"}, {"event_create_with_flags", "event_destroy"}}) {
            EXPECT_LE(cuda_.calls[given], cuda_.calls[taken]) << function;
            EXPECT_GE(cuda_.calls[given], cuda_.calls[taken] - (std::string(taken) == function ? 1 : 0)) << function;
        }
    }
}

TEST_F(cuda_device_calls, numbers_that_cannot_be_streams) {
    cuda_device &dev = open();
    for (const uint64_t number : {uint64_t{3}, uint64_t{12345}, uint64_t{4100}, uint64_t{1} << 60U, ~uint64_t{0},
                                  uint64_t{0xEB} << 56U, uint64_t{0xEB00000000001000}}) {
        const status why = dev.check_stream(stream_id{number});
        EXPECT_EQ(why.code(), code::invalid_argument) << number;
        EXPECT_NE(why.text().find(std::to_string(number)), std::string::npos) << why.text();
    }
    EXPECT_TRUE(dev.check_stream(callers_).ok());
    const stream_id ours = dev.create_stream(stream_role::h2d).value();
    EXPECT_EQ(dev.native_stream(ours).value(), reinterpret_cast<cudaStream_t>(uintptr_t{1} << 20U));
    EXPECT_EQ(dev.native_stream(callers_).value(), reinterpret_cast<cudaStream_t>(uintptr_t{0x7F0012345678}));
}

// ---------------------------------------------------------------------------------------------- at exit --

// Statics end after main, the CUDA runtime with them: who comes late must not call it. In a child, which ends.
[[noreturn]] void end_with_a_late_device() {
    static fake_cuda *cuda = new fake_cuda;  // outlives everything
    struct late_owner {
        std::unique_ptr<cuda_device> device;
        void *mapped = nullptr;
        ~late_owner() {
            const int before = cuda->all_calls;
            const bool refused = device->map_host(64).why().code() == code::device_error;
            const bool given_back = device->unmap_host(mapped, 64).ok();
            device.reset();
            // Status of the child: a destructor cannot give another.
            _exit(refused && given_back && cuda->all_calls == before ? 17 : 18);
        }
    };
    static late_owner owner;  // before the device: it ends after the device's own handlers at exit
    owner.device = std::move(cuda_device::make(cuda->api, 0, {})).value();
    owner.mapped = owner.device->map_host(64).value();
    std::exit(0);
}

TEST(cuda_at_exit, nothing_is_called_once_the_process_ends) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(end_with_a_late_device(), ::testing::ExitedWithCode(17), "");
}

}  // namespace
}  // namespace ebb
