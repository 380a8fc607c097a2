#include "device/registry.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "device/module/cuda_module_loader.hpp"
#include "fake_system.hpp"

namespace ebb {
namespace {

constexpr uint64_t k_mib = 1ULL << 20U;

TEST(registry, makes_devices_by_name) {
    const device_options options;
    for (const char *name : {"host", "null", "sim"}) {
        const auto made = make_device(name, 0, options);
        ASSERT_TRUE(made.ok()) << made.why().text();
        EXPECT_EQ(made.value()->info().name, name);
        EXPECT_EQ(made.value()->info().type, memory_type::cpu);
        EXPECT_EQ(made.value()->info().ordinal, 0);
    }
}

TEST(registry, without_a_driver_automatic_is_the_host_device_and_says_so_once) {
    if (nvidia_driver_is_installed()) {
        GTEST_SKIP() << "an NVIDIA driver is installed";
    }
    std::vector<std::string> lines;
    const logger log(
        [](void *to, int32_t, const char *line) { static_cast<std::vector<std::string> *>(to)->emplace_back(line); },
        &lines, log_level::warning);
    device_options options;
    options.log = &log;
    for (int i = 0; i < 2; ++i) {
        const auto made = make_device("auto", 0, options);
        ASSERT_TRUE(made.ok()) << made.why().text();
        EXPECT_EQ(made.value()->info().name, "host");
    }
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_NE(lines[0].find("no NVIDIA driver is installed"), std::string::npos) << lines[0];
}

TEST(registry, without_a_driver_the_cuda_device_is_refused_with_what_to_do) {
    if (nvidia_driver_is_installed()) {
        GTEST_SKIP() << "an NVIDIA driver is installed";
    }
    const status why = make_device("cuda", 0, {}).why();
    EXPECT_EQ(why.code(), code::unsupported) << why.text();
    EXPECT_NE(why.text().find("\"host\""), std::string::npos) << why.text();
}

TEST(registry, an_unknown_name_is_answered_with_the_names) {
    for (const char *name : {"", "Host", "cuda:1", "host ", "simulator", "host:sim", ":sim"}) {
        const auto made = make_device(name, 0, {});
        ASSERT_FALSE(made.ok());
        EXPECT_EQ(made.why().code(), code::invalid_argument);
        for (const char *part : {"\"cuda\"", "\"host\"", "\"null\"", "\"sim\"", "\"auto\""}) {
            EXPECT_NE(made.why().text().find(part), std::string::npos) << made.why().text();
        }
    }
}

TEST(registry, there_is_one_device_of_a_kind) {
    for (const char *name : {"host", "null", "sim"}) {
        for (const int32_t ordinal : {1, -1}) {
            EXPECT_EQ(make_device(name, ordinal, {}).why().code(), code::invalid_argument);
        }
    }
}

TEST(registry, a_simulated_machine_is_what_its_settings_say) {
    const auto made = make_device("sim", 0, {});
    ASSERT_TRUE(made.ok());
    EXPECT_EQ(made.value()->memory().capacity_bytes, 186'000'000'000U);
    EXPECT_FALSE(made.value()->info().integrated);
    const auto integrated = make_device("sim:integrated=on", 0, {});
    ASSERT_TRUE(integrated.ok()) << integrated.why().text();
    EXPECT_TRUE(integrated.value()->info().integrated);
    const auto other =
        make_device("sim:device_bytes=80G,host_bytes=1.5TiB,latency_ns=0,d2h_bytes_per_second=52GB/s", 0, {});
    ASSERT_TRUE(other.ok()) << other.why().text();
    EXPECT_EQ(other.value()->memory().capacity_bytes, 80ULL << 30U);
    EXPECT_EQ(other.value()->host_room_bytes(), 1536ULL << 30U);
    // A copy of 52 GB in a second; 1 us for each of the two calls.
    device &sim = *other.value();
    const event_id start = sim.create_event(event_kind::timed).value();
    const event_id end = sim.create_event(event_kind::timed).value();
    std::byte *there = reinterpret_cast<std::byte *>(1ULL << 40U);
    ASSERT_TRUE(sim.record_event(start, k_default_stream).ok());
    ASSERT_TRUE(sim.copy(k_default_stream, copy_direction::d2h, there + (1ULL << 38U), there, 52'000'000'000).ok());
    ASSERT_TRUE(sim.record_event(end, k_default_stream).ok());
    ASSERT_TRUE(sim.synchronize_event(end).ok());
    EXPECT_EQ(sim.elapsed_ns(start, end).value(), 1'000'001'000U);
}

TEST(registry, settings_of_a_simulated_machine_that_cannot_be_are_named) {
    const auto refused = [](const char *name) {
        const status why = make_device(name, 0, {}).why();
        EXPECT_EQ(why.code(), code::invalid_argument) << name;
        return why.text();
    };
    EXPECT_EQ(refused("sim:device_bytes=80GB"),
              "device \"sim\": device_bytes is \"80GB\"; allowed: bytes above 0 and up to 64TiB, as in 165GiB");
    EXPECT_EQ(refused("sim:device_bytes=0"),
              "device \"sim\": device_bytes is \"0\"; allowed: bytes above 0 and up to 64TiB, as in 165GiB");
    EXPECT_EQ(refused("sim:d2h_bytes_per_second=fast"),
              "device \"sim\": d2h_bytes_per_second is \"fast\"; allowed: a rate above 0, as in 193GB/s");
    EXPECT_EQ(refused("sim:latency_ns=-1"),
              "device \"sim\": latency_ns is \"-1\"; allowed: a whole number up to 1000000000");
    EXPECT_EQ(refused("sim:integrated=yes"), "device \"sim\": integrated is \"yes\"; allowed: on, off");
    EXPECT_EQ(refused("sim:latency_ns=1,gb200"),
              "device \"sim\": a setting is \"gb200\"; allowed: key=value, as in d2h_bytes_per_second=52GB/s");
    EXPECT_NE(refused("sim:colour=red").find("there is no setting \"colour\"; allowed: device_bytes"),
              std::string::npos);
}

TEST(registry, the_host_devices_memory_must_fit) {
    fake_system system;
    system.write("/proc/meminfo", "MemTotal: 1024000 kB\nMemAvailable: 451200 kB\n");
    device_options options;
    options.host_system_root = system.root();
    // 400,000 kB are left; half of that is less than the default of 1 GiB.
    EXPECT_EQ(make_device("host", 0, options).value()->memory().capacity_bytes, 200000U * 1024);
    options.host_capacity_bytes = 64 * k_mib;
    EXPECT_EQ(make_device("host", 0, options).value()->memory().capacity_bytes, 64 * k_mib);
    options.host_capacity_bytes = 400000U * 1024 + 1;
    const status refused = make_device("host", 0, options).why();
    EXPECT_EQ(refused.code(), code::out_of_host_memory);
    EXPECT_NE(refused.text().find("host_device_bytes"), std::string::npos) << refused.text();
    EXPECT_NE(refused.text().find(std::to_string(400000U * 1024)), std::string::npos) << refused.text();
}

TEST(registry, without_limits_the_host_device_has_one_gib) {
    fake_system system;
    device_options options;
    options.host_system_root = system.root();
    EXPECT_EQ(make_device("host", 0, options).value()->memory().capacity_bytes, 1024 * k_mib);
}

}  // namespace
}  // namespace ebb
