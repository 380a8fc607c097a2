// The handlers on the double of CUDA, as XLA calls them: on its stream, with handles in device memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <list>

#include "base/log.hpp"
#include "capi/session.hpp"
#include "cuda_double/checked_cuda.hpp"
#include "device/cuda/cuda_device.hpp"
#include "fake_xla.hpp"
#include "jax_cuda_mover.hpp"
#include "jax_handlers.hpp"

namespace ebb_jax::test {
namespace {

using ebb::test::cuda_double;
using ebb::test::cuda_user;

cuda_double *g_cuda = nullptr;  // of the test that runs

// A copy into memory that is not pinned may be over when the call returns, and where the device reaches such memory by
// itself it is not: here it arrives as late as can be, when somebody waits for its stream.
struct late_copy {
    void *stream;
    void *to;
    std::vector<std::byte> content;
};
std::list<late_copy> g_late_copies;
// Closed until somebody waits for its stream.
struct stream_gate {
    void *stream = nullptr;
    std::uint32_t *is_open = nullptr;
} g_gate;

int copy_late(void *host, std::uint64_t device, std::size_t size_bytes, void *stream) {
    late_copy &copy = g_late_copies.emplace_back(late_copy{stream, host, std::vector<std::byte>(size_bytes)});
    const void *const from = reinterpret_cast<const void *>(static_cast<std::uintptr_t>(device));
    const auto run = [&copy, from] { std::memcpy(copy.content.data(), from, copy.content.size()); };
    return static_cast<int>(g_cuda->launch_function(static_cast<cudaStream_t>(stream), run,
                                                    ebb::test::work_kind::finite, {{from, size_bytes, false}}));
}

int wait_for(void *stream) {
    if (g_gate.stream == stream && g_gate.is_open != nullptr) {
        __atomic_store_n(g_gate.is_open, 1U, __ATOMIC_RELEASE);
    }
    const cudaError_t error = cuda_double::user().stream_synchronize(static_cast<cudaStream_t>(stream));
    g_late_copies.remove_if([stream](const late_copy &copy) {
        if (copy.stream == stream) {
            std::memcpy(copy.to, copy.content.data(), copy.content.size());
        }
        return copy.stream == stream;
    });
    return static_cast<int>(error);
}

ebb_status create_on_double(const ebb_runtime_options *options, ebb_runtime **runtime) {
    ebb::runtime_options wishes;
    wishes.policy = "offload";
    wishes.min_offload_bytes = 1;
    wishes.staging_bytes = options->staging_bytes;
    return ebb::capi::guarded([&]() -> ebb::status {
        ebb::result<std::unique_ptr<ebb::cuda_device>> device =
            ebb::cuda_device::make(g_cuda->api(), options->device_ordinal, {});
        EBB_TRY(device.why());
        const ebb::result<ebb_runtime *> made =
            ebb::capi::make_runtime(std::move(device).value(), nullptr, wishes,
                                    ebb::logger(nullptr, nullptr, ebb::log_level::warning), nullptr);
        EBB_TRY(made.why());
        *runtime = made.value();
        return {};
    });
}

const cuda_driver k_driver{
    [](void *, void **context) {
        *context = &g_cuda;
        return 0;
    },
    [](void *) { return 0; },
    [](void **) { return 0; },
    [](std::uint64_t device, unsigned char value, std::size_t size_bytes, void *stream) {
        auto *const bytes = reinterpret_cast<void *>(static_cast<std::uintptr_t>(device));
        return static_cast<int>(
            cuda_double::user().memset_async(bytes, value, size_bytes, static_cast<cudaStream_t>(stream)));
    },
    [](std::uint64_t device, unsigned value, std::size_t count, void *stream) {
        auto *const words = reinterpret_cast<unsigned *>(static_cast<std::uintptr_t>(device));
        return static_cast<int>(
            g_cuda->launch_function(static_cast<cudaStream_t>(stream), [=] { std::fill_n(words, count, value); },
                                    ebb::test::work_kind::finite, {{words, count * sizeof value, true}}));
    },
    copy_late,
    wait_for,
};

class cuda_handlers : public ::testing::Test {
protected:
    static constexpr std::int64_t k_rows = 64, k_width = 32;
    static constexpr std::size_t k_bytes = k_rows * k_width * 4;

    cuda_handlers() {
        g_cuda = &cuda_;
        mover_ = make_cuda_mover(&k_driver, create_on_double);
        EXPECT_EQ(user().set_device(0), cudaSuccess);
        EXPECT_EQ(user().stream_create_with_flags(&stream_, cudaStreamNonBlocking), cudaSuccess);
        EXPECT_EQ(user().malloc(&handle_, 2 * sizeof(std::uint64_t)), cudaSuccess);
        for (void **one : {&first_, &second_, &back_first_, &back_second_}) {
            EXPECT_EQ(user().malloc(one, k_bytes), cudaSuccess);
        }
        EXPECT_EQ(user().host_alloc(reinterpret_cast<void **>(&wrong_), sizeof *wrong_, 0), cudaSuccess);
        EXPECT_EQ(user().host_alloc(reinterpret_cast<void **>(&gate_), sizeof *gate_, 0), cudaSuccess);
        *wrong_ = *gate_ = 0;
        ebb_runtime_options options{};
        options.staging_bytes = 16 * k_bytes;
        configure(options, ~std::uint64_t{0});
    }
    ~cuda_handlers() override {
        __atomic_store_n(gate_, 1U, __ATOMIC_RELEASE);
        g_gate = {};
        EXPECT_EQ(user().device_synchronize(), cudaSuccess);
        EXPECT_TRUE(g_late_copies.empty()) << "nobody waited for a copy";
        g_late_copies.clear();
        close_all();
        for (void *one : {handle_, first_, second_, back_first_, back_second_}) {
            EXPECT_EQ(user().free(one), cudaSuccess);
        }
        EXPECT_EQ(user().free_host(wrong_), cudaSuccess);
        EXPECT_EQ(user().free_host(gate_), cudaSuccess);
        EXPECT_EQ(user().stream_destroy(stream_), cudaSuccess);
        g_cuda = nullptr;
    }

    static const cuda_user &user() { return cuda_double::user(); }

    void fill(void *data, std::uint64_t seed) {
        EXPECT_EQ(user().launch_fill(stream_, data, k_bytes, seed), cudaSuccess);
    }
    void compare(void *data, std::uint64_t seed) {
        EXPECT_EQ(user().launch_compare(stream_, data, k_bytes, seed, wrong_), cudaSuccess);
    }
    fake_call call(std::int64_t run) {
        fake_call made(run, 0, stream_);
        made.says(which_ + "\nreloads 1\nscope layer\nname up\nname down");
        return made;
    }
    // What the call says; "" for nothing.
    std::string offload(std::int64_t run) {
        return said(call(run)
                        .argument(first_, {k_rows, k_width})
                        .argument(second_, {k_rows, k_width})
                        .argument(back_first_, {k_rows, k_width})  // what it is ordered behind
                        .result(handle_, {2}, fake_call::k_u32)
                        .make([&](auto *frame) { return handle_offload(frame, *mover_); }));
    }
    std::string reload(std::int64_t run, std::vector<std::int64_t> handle_shape = {2}) {
        return said(call(run)
                        .argument(handle_, std::move(handle_shape), fake_call::k_u32)
                        .argument(first_, {k_rows, k_width})
                        .result(back_first_, {k_rows, k_width})
                        .result(back_second_, {k_rows, k_width})
                        .make([&](auto *frame) { return handle_reload(frame, *mover_); }));
    }
    static std::string said(const std::unique_ptr<xla::error> &error) { return error == nullptr ? "" : error->text; }
    void synchronize() { EXPECT_EQ(user().stream_synchronize(stream_), cudaSuccess); }
    static std::uint64_t live() {
        ebb_statistics numbers{};
        numbers.struct_size = sizeof numbers;
        EXPECT_EQ(ebb_stats(all_places().front()->runtime, &numbers), EBB_OK);
        return numbers.live_activations;
    }

    std::string which_ = "site 7\nserial 0";  // the call
    ebb::test::checked_cuda cuda_;
    std::unique_ptr<mover> mover_;
    cudaStream_t stream_ = nullptr;
    void *handle_ = nullptr, *first_ = nullptr, *second_ = nullptr, *back_first_ = nullptr, *back_second_ = nullptr;
    std::uint32_t *wrong_ = nullptr, *gate_ = nullptr;
};

TEST_F(cuda_handlers, what_is_offloaded_comes_back_though_its_memory_is_used_at_once) {
    for (std::int64_t run = 1; run <= 5; ++run) {
        const auto seed = static_cast<std::uint64_t>(run);
        fill(first_, seed);
        fill(second_, 100 + seed);
        ASSERT_EQ(offload(run), "");
        fill(first_, 777);
        fill(second_, 778);
        fill(back_first_, 779);
        fill(back_second_, 780);
        ASSERT_EQ(reload(run), "");
        compare(back_first_, seed);
        compare(back_second_, 100 + seed);
    }
    synchronize();
    EXPECT_EQ(*wrong_, 0U);
}

TEST_F(cuda_handlers, an_offload_waits_for_nothing) {
    EXPECT_EQ(user().launch_wait(stream_, gate_), cudaSuccess);
    fill(first_, 1);
    fill(second_, 2);
    ASSERT_EQ(offload(1), "");  // the gate is closed
    fill(first_, 3);
    __atomic_store_n(gate_, 1U, __ATOMIC_RELEASE);
    ASSERT_EQ(reload(1), "");
    compare(back_first_, 1);
    compare(back_second_, 2);
    synchronize();
    EXPECT_EQ(*wrong_, 0U);
}

TEST_F(cuda_handlers, a_handle_is_read_when_all_before_it_on_the_stream_is_done) {
    fill(first_, 1);
    fill(second_, 2);
    ASSERT_EQ(offload(1), "");
    synchronize();
    g_gate = {stream_, gate_};
    EXPECT_EQ(user().launch_wait(stream_, gate_), cudaSuccess);
    fill(first_, 3);
    fill(second_, 4);
    ASSERT_EQ(offload(2), "");  // the first handle lies in device memory until the gate opens
    ASSERT_EQ(reload(2), "");
    compare(back_first_, 3);
    compare(back_second_, 4);
    synchronize();
    EXPECT_EQ(*wrong_, 0U);
}

TEST_F(cuda_handlers, another_run_ends_what_had_its_last_reload) {
    ASSERT_EQ(offload(1), "");
    ASSERT_EQ(reload(1), "");
    ASSERT_EQ(reload(1), "");  // in a loop, say: it is still there
    EXPECT_EQ(live(), 2U);
    all_groups().release_all("the test ended it");
    ASSERT_EQ(offload(2), "");
    ASSERT_EQ(reload(2), "");
    EXPECT_EQ(live(), 2U);
    synchronize();
}

TEST_F(cuda_handlers, a_later_program_may_have_larger_arrays) {
    configure({}, ~std::uint64_t{0});  // staging as large as the first steps ask for
    for (std::int64_t run = 1; run <= 8; ++run) {
        const std::int64_t rows = run <= 4 ? 1 : k_rows;
        fill(first_, static_cast<std::uint64_t>(run));
        ASSERT_EQ(said(call(run)
                           .argument(first_, {rows, k_width})
                           .argument(second_, {rows, k_width})
                           .result(handle_, {2}, fake_call::k_u32)
                           .make([&](auto *frame) { return handle_offload(frame, *mover_); })),
                  "")
            << run;
        fill(first_, 777);
        ASSERT_EQ(said(call(run)
                           .argument(handle_, {2}, fake_call::k_u32)
                           .result(back_first_, {rows, k_width})
                           .result(back_second_, {rows, k_width})
                           .make([&](auto *frame) { return handle_reload(frame, *mover_); })),
                  "");
        if (rows == k_rows) {
            compare(back_first_, static_cast<std::uint64_t>(run));
        }
    }
    synchronize();
    EXPECT_EQ(*wrong_, 0U);
}

TEST_F(cuda_handlers, what_is_gone_is_told_by_name) {
    ASSERT_EQ(offload(1), "");
    all_groups().release_all("the test ended it");
    EXPECT_EQ(reload(1), "ebb.jax: what layer: up, down offloaded is gone: the test ended it");
    EXPECT_EQ(live(), 0U);
    synchronize();
}

TEST_F(cuda_handlers, handles_of_a_batch_are_one) {
    ASSERT_EQ(offload(1), "");
    char *const handles = static_cast<char *>(handle_);
    // The second handle behind the first is not a copy of it.
    EXPECT_EQ(user().memset_async(handles + 8, 1, 8, stream_), cudaSuccess);
    EXPECT_THAT(reload(1, {2, 2}), ::testing::HasSubstr("was offloaded in several calls"));
    EXPECT_EQ(user().memcpy_async(handles + 8, handles, 8, cudaMemcpyDeviceToDevice, stream_), cudaSuccess);
    EXPECT_EQ(reload(1, {2, 2}), "");
    synchronize();
}

TEST_F(cuda_handlers, of_a_batch_some_or_none_took_the_branch_that_offloads) {
    fill(first_, 1);
    fill(second_, 2);
    ASSERT_EQ(offload(1), "");
    char *const handles = static_cast<char *>(handle_);
    EXPECT_EQ(user().memcpy_async(handles + 8, handles, 8, cudaMemcpyDeviceToDevice, stream_), cudaSuccess);
    EXPECT_EQ(user().memset_async(handles, 0, 8, stream_), cudaSuccess);
    EXPECT_EQ(reload(1, {2, 2}), "");
    compare(back_first_, 1);
    compare(back_second_, 2);
    synchronize();
    EXPECT_EQ(*wrong_, 0U);

    EXPECT_EQ(user().memset_async(handles, 0, 16, stream_), cudaSuccess);
    EXPECT_EQ(reload(1, {2, 2}), "");
    std::vector<unsigned char> bytes(k_bytes, 1);
    for (void *one : {back_first_, back_second_}) {
        EXPECT_EQ(user().memcpy_async(bytes.data(), one, k_bytes, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
        synchronize();
        EXPECT_THAT(bytes, ::testing::Each(0));
    }
    EXPECT_THAT(reload(1), ::testing::HasSubstr("never offloaded"));  // not a batch
}

TEST_F(cuda_handlers, of_a_batch_that_took_several_branches_each_reloads_its_own) {
    char *const handles = static_cast<char *>(handle_);
    const std::string ours = which_;
    for (const std::string other : {"site 7\nserial 1", "site 8\nserial 0"}) {
        fill(first_, 1);
        fill(second_, 2);
        which_ = other;
        ASSERT_EQ(offload(1), "");
        EXPECT_EQ(user().memcpy_async(handles + 8, handles, 8, cudaMemcpyDeviceToDevice, stream_), cudaSuccess);
        fill(first_, 3);
        fill(second_, 4);
        which_ = ours;
        ASSERT_EQ(offload(1), "");
        ASSERT_EQ(reload(1, {2, 2}), "");
        compare(back_first_, 3);
        compare(back_second_, 4);
        which_ = other;
        ASSERT_EQ(reload(1, {2, 2}), "");
        compare(back_first_, 1);
        compare(back_second_, 2);
    }
    // Nobody took the branch: its arrays are there, and nobody reads them.
    EXPECT_EQ(user().memcpy_async(handles, handles + 8, 8, cudaMemcpyDeviceToDevice, stream_), cudaSuccess);
    which_ = ours;
    ASSERT_EQ(reload(1, {2, 2}), "");
    synchronize();
    EXPECT_EQ(*wrong_, 0U);
}

TEST_F(cuda_handlers, XLA_is_told_that_calls_are_not_to_be_recorded) {
    xla::metadata asked{};
    asked.traits = ~0U;
    xla::metadata_extension extension{{sizeof extension, xla::k_metadata_extension, nullptr}, &asked};
    EXPECT_EQ(said(call(1).make([&](auto *frame) { return handle_reload(frame, *mover_); }, &extension.base)), "");
    EXPECT_EQ(asked.traits, 0U);
    EXPECT_EQ(asked.api_version.major, 0);
    EXPECT_EQ(asked.api_version.minor, 3);  // what the table says
    // In other stages there is nothing to do.
    EXPECT_EQ(said(call(1).make([&](auto *frame) { return handle_reload(frame, *mover_); }, nullptr, 2)), "");
}

TEST_F(cuda_handlers, without_a_driver_it_says_so) {
    const std::unique_ptr<mover> none = make_cuda_mover(nullptr, create_on_double);
    std::uint64_t handle = 0;
    const failure why = none->read_handles(handle_, &handle, 1, stream_);
    ASSERT_TRUE(why);
    EXPECT_THAT(*why.text, ::testing::HasSubstr("no CUDA driver"));
}

}  // namespace
}  // namespace ebb_jax::test
