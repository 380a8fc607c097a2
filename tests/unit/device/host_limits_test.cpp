#include "device/host/host_limits.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "fake_system.hpp"

namespace ebb {
namespace {

constexpr uint64_t k_unlimited = std::numeric_limits<uint64_t>::max();

class host_limits : public ::testing::Test {
protected:
    [[nodiscard]] host_room read() const { return read_host_room(system_.root()); }
    void memory_of_version_2(const std::string &group, const std::string &limit, const std::string &use) const {
        system_.write("/sys/fs/cgroup" + group + "/memory.max", limit);
        system_.write("/sys/fs/cgroup" + group + "/memory.current", use);
    }
    void memory_of_version_1(const std::string &group, const std::string &limit, const std::string &use) const {
        system_.write("/sys/fs/cgroup/memory" + group + "/memory.limit_in_bytes", limit);
        system_.write("/sys/fs/cgroup/memory" + group + "/memory.usage_in_bytes", use);
    }

    fake_system system_;
};

TEST_F(host_limits, an_empty_system_limits_nothing) {
    const host_room room = read();
    EXPECT_EQ(room.room_bytes, k_unlimited);
    EXPECT_EQ(room.limiter, memory_limiter::none);
    EXPECT_EQ(read_host_room("/no/such/place").room_bytes, k_unlimited);
}

TEST_F(host_limits, the_system_keeps_five_per_cent_of_its_memory) {
    system_.write("/proc/meminfo", "MemTotal:  1000 kB\nMemFree:  1 kB\nMemAvailable:    600 kB\n");
    const host_room room = read();
    EXPECT_EQ(room.room_bytes, 550U * 1024);
    EXPECT_EQ(room.limiter, memory_limiter::system);
    EXPECT_EQ(room.limit_bytes, 1000U * 1024);
    EXPECT_EQ(room.used_bytes, 400U * 1024);
    EXPECT_NE(explain(room).find("1024000"), std::string::npos) << explain(room);
}

TEST_F(host_limits, less_available_than_the_margin_is_no_room) {
    system_.write("/proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 49 kB\n");
    EXPECT_EQ(read().room_bytes, 0U);
}

TEST_F(host_limits, a_meminfo_without_total_still_counts) {
    system_.write("/proc/meminfo", "MemAvailable:\t1000 kB\n");
    EXPECT_EQ(read().room_bytes, 950U * 1024);
}

TEST_F(host_limits, version_2_group) {
    system_.write("/proc/self/cgroup", "0::/work/job\n");
    memory_of_version_2("/work/job", "1000000\n", "200000\n");
    const host_room room = read();
    EXPECT_EQ(room.room_bytes, 750000U);
    EXPECT_EQ(room.limiter, memory_limiter::control_group);
    EXPECT_EQ(room.limit_bytes, 1000000U);
    EXPECT_EQ(room.used_bytes, 200000U);
    EXPECT_EQ(room.limit_file, "/sys/fs/cgroup/work/job/memory.max");
    const std::string text = explain(room);
    for (const char *part :
         {"control group", "1000000", "200000", "/sys/fs/cgroup/work/job/memory.max", "host_bytes"}) {
        EXPECT_NE(text.find(part), std::string::npos) << text;
    }
}

TEST_F(host_limits, max_is_no_limit_and_the_group_above_counts) {
    system_.write("/proc/self/cgroup", "0::/a/b/c\n");
    memory_of_version_2("/a/b/c", "max\n", "10\n");
    memory_of_version_2("/a/b", "5000\n", "1000\n");
    memory_of_version_2("/a", "100000\n", "1000\n");
    EXPECT_EQ(read().room_bytes, 3750U);
    EXPECT_EQ(read().limit_file, "/sys/fs/cgroup/a/b/memory.max");
    // The tightest is the one with the least room, not the smallest limit.
    memory_of_version_2("/a", "100000\n", "94000\n");
    EXPECT_EQ(read().room_bytes, 1000U);
    EXPECT_EQ(read().limit_file, "/sys/fs/cgroup/a/memory.max");
}

TEST_F(host_limits, the_root_group_of_a_container) {
    system_.write("/proc/self/cgroup", "0::/not/mounted/here\n");
    memory_of_version_2("", "2000\n", "100\n");
    EXPECT_EQ(read().room_bytes, 1800U);
    system_.write("/proc/self/cgroup", "0::/\n");
    EXPECT_EQ(read().room_bytes, 1800U);
}

TEST_F(host_limits, page_cache_that_can_go_is_not_in_use) {
    system_.write("/proc/self/cgroup", "0::/a\n");
    memory_of_version_2("/a", "10000\n", "9000\n");
    system_.write("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file_x 5\ninactive_file 4000\nactive_file 3\n");
    EXPECT_EQ(read().room_bytes, 4500U);
    // More than is in use at all would be nonsense.
    system_.write("/sys/fs/cgroup/a/memory.stat", "inactive_file 99000\n");
    EXPECT_EQ(read().room_bytes, 9500U);
}

TEST_F(host_limits, version_1_group) {
    system_.write("/proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/box/1\n1:cpu:/\n0::/\n");
    memory_of_version_1("/box/1", "20000\n", "12000\n");
    memory_of_version_1("", "9223372036854771712\n", "500000\n");
    system_.write("/sys/fs/cgroup/memory/box/1/memory.stat", "inactive_file 1\ntotal_inactive_file 2000\n");
    const host_room room = read();
    EXPECT_EQ(room.room_bytes, 9000U);
    EXPECT_EQ(room.limit_file, "/sys/fs/cgroup/memory/box/1/memory.limit_in_bytes");
}

TEST_F(host_limits, a_controller_whose_name_only_contains_memory_is_another) {
    system_.write("/proc/self/cgroup", "4:memory_other,notmemory:/a\n");
    memory_of_version_1("/a", "20000\n", "12000\n");
    EXPECT_EQ(read().room_bytes, k_unlimited);
}

TEST_F(host_limits, both_versions_mounted) {
    system_.write("/proc/self/cgroup", "4:memory:/a\n0::/b\n");
    memory_of_version_1("/a", "20000\n", "10000\n");
    system_.write("/sys/fs/cgroup/unified/b/memory.max", "8000");
    system_.write("/sys/fs/cgroup/unified/b/memory.current", "0");
    EXPECT_EQ(read().room_bytes, 7600U);
}

TEST_F(host_limits, garbage_limits_nothing) {
    for (const char *garbage : {"", "\n", "lots", "-5", "12x4", "0x10", "99999999999999999999999", " 12"}) {
        system_.write("/proc/self/cgroup", "0::/a\n");
        memory_of_version_2("/a", garbage, "10\n");
        EXPECT_EQ(read().room_bytes, k_unlimited) << "limit " << garbage;
        memory_of_version_2("/a", "1000\n", garbage);
        EXPECT_EQ(read().room_bytes, k_unlimited) << "use " << garbage;
        system_.write("/proc/meminfo", std::string("MemAvailable: ") + garbage + " kB\n");
        EXPECT_EQ(read().limiter == memory_limiter::system, std::string(garbage) == " 12") << "meminfo " << garbage;
        system_.write("/proc/meminfo", "");
    }
    for (const char *garbage : {"", "::", "0:", "no colons", "0::\n:::\n\n", "MemAvailable:"}) {
        system_.write("/proc/self/cgroup", garbage);
        system_.write("/proc/meminfo", garbage);
        memory_of_version_2("/a", "1000\n", "1\n");
        EXPECT_EQ(read().room_bytes, k_unlimited) << garbage;
    }
}

TEST_F(host_limits, a_group_above_its_limit_has_no_room) {
    system_.write("/proc/self/cgroup", "0::/a\n");
    memory_of_version_2("/a", "1000\n", "2000\n");
    EXPECT_EQ(read().room_bytes, 0U);
    memory_of_version_2("/a", "1000\n", "18446744073709551615\n");
    EXPECT_EQ(read().room_bytes, 0U);
    memory_of_version_2("/a", "0\n", "0\n");
    EXPECT_EQ(read().room_bytes, 0U);
}

TEST_F(host_limits, the_smaller_of_group_and_system) {
    system_.write("/proc/self/cgroup", "0::/a\n");
    memory_of_version_2("/a", "1000000\n", "0\n");
    system_.write("/proc/meminfo", "MemTotal: 10000 kB\nMemAvailable: 9000 kB\n");
    EXPECT_EQ(read().limiter, memory_limiter::control_group);
    system_.write("/proc/meminfo", "MemTotal: 10000 kB\nMemAvailable: 600 kB\n");
    EXPECT_EQ(read().limiter, memory_limiter::system);
    EXPECT_EQ(read().room_bytes, 100U * 1024);
}

TEST_F(host_limits, a_root_with_a_slash_at_its_end) {
    system_.write("/proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 1000 kB\n");
    EXPECT_EQ(read_host_room(system_.root() + "/").room_bytes, 950U * 1024);
}

TEST_F(host_limits, this_system_has_room) {
    const host_room room = read_host_room("/");
    EXPECT_NE(room.limiter, memory_limiter::none);
    EXPECT_GT(room.room_bytes, 0U);
    EXPECT_LT(room.room_bytes, room.limit_bytes);
}

}  // namespace
}  // namespace ebb
