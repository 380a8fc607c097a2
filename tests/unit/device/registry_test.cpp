#include "device/registry.hpp"

#include <gtest/gtest.h>

#include "fake_system.hpp"

namespace ebb {
namespace {

constexpr uint64_t k_mib = 1ULL << 20U;

TEST(registry, makes_devices_by_name) {
    const device_options options;
    for (const auto &[name, made_name] : {std::pair{"host", "host"}, {"null", "null"}, {"auto", "host"}}) {
        const auto made = make_device(name, 0, options);
        ASSERT_TRUE(made.ok()) << made.why().text();
        EXPECT_EQ(made.value()->info().name, made_name);
        EXPECT_EQ(made.value()->info().type, memory_type::cpu);
        EXPECT_EQ(made.value()->info().ordinal, 0);
    }
}

TEST(registry, an_unknown_name_is_answered_with_the_names) {
    for (const char *name : {"", "Host", "cuda", "host "}) {
        const auto made = make_device(name, 0, {});
        ASSERT_FALSE(made.ok());
        EXPECT_EQ(made.why().code(), code::invalid_argument);
        for (const char *part : {"\"host\"", "\"null\"", "\"auto\""}) {
            EXPECT_NE(made.why().text().find(part), std::string::npos) << made.why().text();
        }
    }
}

TEST(registry, there_is_one_device_of_a_kind) {
    for (const char *name : {"host", "null", "auto"}) {
        for (const int32_t ordinal : {1, -1}) {
            EXPECT_EQ(make_device(name, ordinal, {}).why().code(), code::invalid_argument);
        }
    }
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
    EXPECT_EQ(make_device("auto", 0, options).value()->memory().capacity_bytes, 1024 * k_mib);
}

}  // namespace
}  // namespace ebb
