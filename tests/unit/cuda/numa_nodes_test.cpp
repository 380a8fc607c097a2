#include "device/cuda/numa_nodes.hpp"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "fake_system.hpp"

namespace ebb {
namespace {

class numa_nodes : public ::testing::Test {
protected:
    void node(int number, const std::string &cpus, const std::string &distance) const {
        const std::string folder = "/sys/devices/system/node/node" + std::to_string(number);
        system_.write(folder + "/cpulist", cpus + "\n");
        system_.write(folder + "/distance", distance + "\n");
    }
    void online(const std::string &list) const { system_.write("/sys/devices/system/node/online", list + "\n"); }
    [[nodiscard]] node_choice choose(int32_t device_node, const std::string &bus_id = "0000:3B:00.0") const {
        return choose_host_node(system_.root(), device_node, bus_id);
    }

    fake_system system_;
};

TEST_F(numa_nodes, lists_of_numbers) {
    EXPECT_EQ(parse_number_list("0-3,8,10-11\n"), (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
    EXPECT_EQ(parse_number_list("5"), (std::vector<int>{5}));
    EXPECT_TRUE(parse_number_list("").empty());
    EXPECT_TRUE(parse_number_list("\n").empty());
    EXPECT_EQ(parse_number_list("x,3"), (std::vector<int>{3}));
    EXPECT_TRUE(parse_number_list("-4").empty());
    EXPECT_TRUE(parse_number_list("9-2").empty());
}

TEST_F(numa_nodes, cuda_names_the_node) {
    online("0-1");
    node(0, "0-15", "10 21");
    node(1, "16-31", "21 10");
    const node_choice choice = choose(1);
    EXPECT_EQ(choice.node, 1);
    EXPECT_EQ(choice.cpus.size(), 16U);
    EXPECT_EQ(choice.cpus.front(), 16);
}

TEST_F(numa_nodes, else_the_pci_device_does_whose_folder_is_in_lower_case) {
    online("0-1");
    node(0, "0-15", "10 21");
    node(1, "16-31", "21 10");
    system_.write("/sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
    EXPECT_EQ(choose(k_no_node).node, 1);
    EXPECT_NE(choose(k_no_node).reason.find("0000:3B:00.0"), std::string::npos);
    system_.write("/sys/bus/pci/devices/0000:3b:00.0/numa_node", "-1\n");
    EXPECT_EQ(choose(k_no_node).node, k_no_node);
    EXPECT_EQ(choose(k_no_node, "0000:99:00.0").node, k_no_node);
}

// Two Grace CPUs, and the memory of four GPUs as nodes of its own; node 10 and on, as they come there. A distance file
// has a number for each node that is online, not for each that could be.
TEST_F(numa_nodes, a_node_without_cpus_stands_for_the_nearest_that_has_some) {
    online("0-1,2,10,18,26");
    node(0, "0-71", "10 40 80 80 120 120");
    node(1, "72-143", "40 10 120 120 80 80");
    node(2, "", "80 120 10 255 255 255");
    node(10, "", "80 120 255 10 255 255");
    node(18, "", "120 80 255 255 10 255");
    node(26, "", "120 80 255 255 255 10");
    EXPECT_EQ(choose(2).node, 0);
    EXPECT_EQ(choose(10).node, 0);
    EXPECT_EQ(choose(18).node, 1);
    const node_choice choice = choose(26);
    EXPECT_EQ(choice.node, 1);
    EXPECT_EQ(choice.cpus.front(), 72);
    EXPECT_NE(choice.reason.find("node 26"), std::string::npos) << choice.reason;
}

TEST_F(numa_nodes, distances_go_by_the_nodes_that_are_online) {
    online("0,2,4,8");
    node(0, "", "10 90 90 90");
    node(2, "0-3", "90 10 90 50");
    node(4, "4-7", "90 90 10 30");
    node(8, "", "90 50 30 10");
    EXPECT_EQ(choose(8).node, 4);
}

TEST_F(numa_nodes, where_no_node_has_cpus_there_is_no_choice) {
    online("0-1");
    node(0, "", "10 20");
    node(1, "", "20 10");
    EXPECT_EQ(choose(1).node, k_no_node);
}

TEST_F(numa_nodes, one_node_or_none_that_is_known_is_no_choice) {
    EXPECT_EQ(choose(0).node, k_no_node);
    online("0");
    node(0, "0-3", "10");
    EXPECT_EQ(choose(0).node, k_no_node);
    online("0,2");
    node(2, "4-7", "20 10");
    EXPECT_EQ(choose(2).node, 2);
    EXPECT_EQ(choose(1).node, k_no_node) << "node 1 is not online";
    EXPECT_EQ(choose(5000).node, k_no_node);
    EXPECT_EQ(choose_host_node(system_.root() + "/", 2, "").node, 2);
}

// The real system: every machine has a node 0, and none has node 1000.
TEST(numa_system, memory_is_put_on_a_node_and_found_there) {
    constexpr size_t k_bytes = 64 * 4096;
    void *data = mmap(nullptr, k_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(data, MAP_FAILED);
    const int refused = prefer_node(data, k_bytes, 0);
    if (refused == EPERM || refused == ENOSYS) {
        munmap(data, k_bytes);
        GTEST_SKIP() << "this system lets nobody place memory";
    }
    EXPECT_EQ(refused, 0);
    *static_cast<volatile char *>(data) = 1;
    EXPECT_EQ(node_of_page(data), 0);
    EXPECT_EQ(prefer_node(data, k_bytes, 1000), EINVAL);
    EXPECT_EQ(prefer_node(data, k_bytes, -1), EINVAL);
    EXPECT_EQ(prefer_node(data, k_bytes, 1 << 20), EINVAL);
    munmap(data, k_bytes);
}

TEST(numa_system, a_threads_policy_is_put_back) {
    const auto policy = [] {
        int mode = -1;
        return syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0 ? mode : -1;
    };
    const int before = policy();
    if (before < 0) {
        GTEST_SKIP() << "this system tells nobody its policy";
    }
    {
        const thread_node_scope scope(0);
        ASSERT_EQ(scope.refusal(), 0);
        EXPECT_EQ(policy(), MPOL_PREFERRED);
    }
    EXPECT_EQ(policy(), before);
    {
        const thread_node_scope scope(1000);
        EXPECT_NE(scope.refusal(), 0);
    }
    {
        const thread_node_scope scope(k_no_node);
        EXPECT_NE(scope.refusal(), 0);
    }
    EXPECT_EQ(policy(), before);
}

}  // namespace
}  // namespace ebb
