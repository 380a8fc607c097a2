// Processes of one host share what its limits leave.
#include <gtest/gtest.h>

#include <memory>

#include "capi/session.hpp"
#include "device/null/null_device.hpp"
#include "ebb/ebb.h"

namespace ebb::test {
namespace {

constexpr uint64_t k_room_bytes = 12U << 20U;

// What one activation larger than any share is refused for.
uint64_t cap_bytes(uint64_t host_bytes, uint32_t host_processes) {
    runtime_options o;
    o.host_bytes = host_bytes;
    o.host_processes = host_processes;
    o.max_activation_bytes = 2 * k_room_bytes;
    o.policy = "offload";
    null_device_options device;
    device.host_room_bytes = k_room_bytes;
    result<ebb_runtime *> made =
        capi::make_runtime(std::make_unique<null_device>(device), nullptr, o, logger(), nullptr);
    EXPECT_TRUE(made.ok()) << made.why().text();
    const ebb_stream stream = EBB_STREAM_DEFAULT;
    ebb_offload_args args{};
    args.struct_size = sizeof(args);
    args.name = "large";
    args.data = reinterpret_cast<void *>(uintptr_t{1} << 30U);
    args.size_bytes = 2 * k_room_bytes;
    args.producers = &stream;
    args.producer_count = 1;
    ebb_offload_info info{};
    info.struct_size = sizeof(info);
    EXPECT_EQ(ebb_offload(made.value(), &args, &info), EBB_OK) << ebb_last_error();
    EXPECT_EQ(info.reason, EBB_REASON_HOST_CAP);
    EXPECT_EQ(ebb_runtime_close(made.value(), EBB_CLOSE_FORCE), EBB_OK);
    return info.cap_bytes;
}

TEST(host_share, each_process_takes_its_part_of_what_limits_leave) {
    EXPECT_EQ(cap_bytes(0, 1), k_room_bytes);
    EXPECT_EQ(cap_bytes(0, 4), k_room_bytes / 4);
}

TEST(host_share, a_cap_that_was_given_is_each_ones_own) {
    EXPECT_EQ(cap_bytes(8U << 20U, 4), 8U << 20U);
}

}  // namespace
}  // namespace ebb::test
