// Ranges for a profiler: which are opened for what, and that they are closed in order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "capi_fixture.hpp"
#include "device/decorator.hpp"
#include "device/host/host_device.hpp"

namespace ebb::test {
namespace {

struct profiled {
    std::vector<std::string> ranges;
    int open = 0;
};

struct host_holder {
    explicit host_holder(const host_device_options &options) : held(options) {}
    host_device held;
};

class profiled_device final : private host_holder, public device_decorator {
public:
    profiled_device(const host_device_options &options, profiled &seen)
        : host_holder(options), device_decorator(held), seen_(seen) {}
    host_device &host() noexcept { return held; }
    void begin_range(const char *what, const char *name, uint64_t size_bytes) noexcept override {
        seen_.ranges.push_back(std::string(what) + " " + name + " " + std::to_string(size_bytes));
        ++seen_.open;
    }
    void end_range() noexcept override { --seen_.open; }

private:
    profiled &seen_;
};

class profile_ranges : public ::testing::TestWithParam<bool> {};

TEST_P(profile_ranges, name_offload_prefetch_and_both_waits_with_their_bytes) {
    profiled seen;
    host_device_options host;
    host.capacity_bytes = 16ULL << 20U;
    auto dev = std::make_unique<profiled_device>(host, seen);
    host_device *device = &dev->host();
    runtime_options options;
    options.policy = "offload";
    options.min_offload_bytes = 1;
    options.source_bytes = k_none_bytes;
    options.profile_ranges = GetParam();
    result<ebb_runtime *> made = capi::make_runtime(std::move(dev), device, options, logger(), nullptr);
    ASSERT_TRUE(made.ok());
    ebb_runtime *runtime = made.value();
    ebb_stream stream = 0;
    EBB_ASSERT_OK(ebb_host_stream_create(runtime, &stream));
    for (int step = 0; step < 3; ++step) {
        EBB_ASSERT_OK(ebb_step(runtime, EBB_PHASE_TRAIN));
        std::vector<ebb_activation> saved;
        for (const char *name : {"a", "b"}) {
            ebb_offload_args args = zeroed<ebb_offload_args>();
            args.name = name;
            args.size_bytes = 4096;
            EBB_ASSERT_OK(ebb_host_alloc(runtime, args.size_bytes, &args.data));
            args.producers = &stream;
            args.producer_count = 1;
            ebb_offload_info info = zeroed<ebb_offload_info>();
            EBB_ASSERT_OK(ebb_offload(runtime, &args, &info));
            saved.push_back(info.activation);
        }
        for (size_t i = saved.size(); i-- > 0;) {
            ebb_reload_info back = zeroed<ebb_reload_info>();
            EBB_ASSERT_OK(ebb_reload(runtime, saved[i], stream, &back));
            EBB_ASSERT_OK(ebb_return(runtime, back.claim, stream));
            EBB_ASSERT_OK(ebb_release(runtime, saved[i]));
        }
    }
    EXPECT_EQ(seen.open, 0);
    if (GetParam()) {
        EXPECT_THAT(seen.ranges, ::testing::IsSupersetOf({"offload a 4096", "give-up wait a 4096", "reload wait a 4096",
                                                          "prefetch b 4096", "offload b 4096"}));
    } else {
        EXPECT_THAT(seen.ranges, ::testing::IsEmpty());
    }
    EBB_EXPECT_OK(ebb_runtime_close(runtime, EBB_CLOSE_FORCE));
}

INSTANTIATE_TEST_SUITE_P(on_and_off, profile_ranges, ::testing::Bool());

}  // namespace
}  // namespace ebb::test
