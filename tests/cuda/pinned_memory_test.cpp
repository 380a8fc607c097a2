// Where the pinned memory of a training run lies, and what happens where there is little of it, on machines that the
// double and a made-up system make believe.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cuda_loop.hpp"
#include "fake_system.hpp"

namespace ebb::test {
namespace {

using ::testing::HasSubstr;

constexpr int k_layers = 6;

void train(cuda_loop &loop, int steps = 3) {
    for (int step = 0; step < steps; ++step) {
        loop.train(k_layers, k_loop_bytes);
    }
    loop.ok(loop.user().device_synchronize());
}

// ------------------------------------------------------------------------------------------------------- S2 --

// The first node of this machine, which there is everywhere, beside one that the made-up system has alone.
class two_nodes {
public:
    two_nodes() {
        system_.write("/sys/devices/system/node/online", "0-1\n");
        node(0, "0", "10 20");
        node(1, "1", "20 10");
    }
    void node(int number, const std::string &cpus, const std::string &distance) const {
        const std::string folder = "/sys/devices/system/node/node" + std::to_string(number);
        system_.write(folder + "/cpulist", cpus + "\n");
        system_.write(folder + "/distance", distance + "\n");
    }
    [[nodiscard]] cuda_device_options options() const {
        cuda_device_options o;
        o.system_root = system_.root();
        return o;
    }
    static cuda_double_options with_node(int number) {
        cuda_double_options o;
        o.attributes[cudaDevAttrHostNumaId] = number;
        return o;
    }

private:
    fake_system system_;
};

TEST(cuda_pinned_memory, S2_slabs_are_on_the_devices_node) {
    const two_nodes nodes;
    checked_cuda cuda(two_nodes::with_node(0));
    cuda_loop loop(cuda, loop_options(), 0, nodes.options());
    train(loop);
    const pinned_statistics pinned = loop.device().statistics().pinned;
    EXPECT_EQ(pinned.numa_node, 0);
    EXPECT_GT(pinned.mapped_bytes, 0U);
    EXPECT_EQ(pinned.far_bytes, 0U) << "all pages that were looked at are on it";
}

// As on GB200, where the GPU's own memory is a node.
TEST(cuda_pinned_memory, S2_a_node_without_cpus_is_the_gpus_own_memory) {
    const two_nodes nodes;
    nodes.node(1, "", "20 10");
    checked_cuda cuda(two_nodes::with_node(1));
    cuda_loop loop(cuda, loop_options(), 0, nodes.options());
    train(loop);
    EXPECT_EQ(loop.device().statistics().pinned.numa_node, 0);
    EXPECT_EQ(loop.device().statistics().pinned.far_bytes, 0U);
}

// On this machine there is no such node: the system refuses to place memory there, which is told, and training goes on
// wherever the memory comes to lie.
TEST(cuda_pinned_memory, S2_a_refused_placement_is_told_and_costs_nothing_else) {
    constexpr int k_nowhere = 1000;
    fake_system system;
    system.write("/sys/devices/system/node/online", "0,1000\n");
    system.write("/sys/devices/system/node/node0/cpulist", "0\n");
    system.write("/sys/devices/system/node/node1000/cpulist", "1\n");
    cuda_device_options options;
    options.system_root = system.root();
    checked_cuda cuda(two_nodes::with_node(k_nowhere));
    cuda_loop loop(cuda, loop_options(), 0, options);
    train(loop);
    const pinned_statistics pinned = loop.device().statistics().pinned;
    EXPECT_EQ(pinned.numa_node, k_nowhere);
    EXPECT_NE(pinned.placing_refusal, 0);
    ASSERT_EQ(loop.device().notes().size(), 1U);
    EXPECT_THAT(loop.device().notes()[0], HasSubstr("NUMA node 1000"));
    EXPECT_EQ(loop.stats().kept_count, 0U);
}

// ------------------------------------------------------------------------------------------------------- M8 --

TEST(cuda_pinned_memory, M8_what_cuda_refuses_to_pin_is_named_and_the_run_goes_on) {
    checked_cuda cuda;
    cuda_loop loop(cuda, loop_options());
    constexpr uint64_t k_pinnable_bytes = 3 * k_loop_bytes;
    cuda.set_pinned_limit(k_pinnable_bytes + sizeof(uint64_t));  // and the loop's own word
    for (int step = 0; step < 3; ++step) {
        loop.step();
        std::vector<cuda_loop::saved> live;
        int kept = 0;
        for (int l = 0; l < k_layers; ++l) {
            live.push_back(loop.forward("layer", k_loop_bytes));
            if (loop.info().placement == EBB_PLACE_KEEP) {
                ++kept;
                EXPECT_EQ(loop.info().reason, EBB_REASON_PINNING);
                EXPECT_EQ(loop.info().wanted_bytes, k_loop_bytes);
            }
        }
        EXPECT_EQ(kept, k_layers - 3);
        while (!live.empty()) {
            loop.backward(live.back());
            live.pop_back();
        }
        loop.ok(loop.user().device_synchronize());
    }
    ASSERT_EQ(loop.log().size(), 1U);
    EXPECT_THAT(loop.log()[0], HasSubstr("cudaErrorMemoryAllocation"));
    EXPECT_THAT(loop.log()[0], HasSubstr("host_bytes"));
}

// Where the GPU reads through the host's page tables, registered pages are not pinned: CUDA's own are.
TEST(cuda_pinned_memory, is_cudas_own_where_registering_pins_nothing) {
    cuda_double_options grace;
    grace.attributes = {{cudaDevAttrPageableMemoryAccess, 1}, {cudaDevAttrPageableMemoryAccessUsesHostPageTables, 1}};
    checked_cuda cuda(grace);
    cuda_loop loop(cuda, loop_options());
    train(loop);
    EXPECT_EQ(cuda.calls(cuda_call::host_register), 0U);
    EXPECT_GT(cuda.calls(cuda_call::host_alloc), 0U);
    EXPECT_GT(loop.stats().d2h_bytes, 0U);
}

// ------------------------------------------------------------------------------------------------------- S6 --

TEST(cuda_pinned_memory, S6_nothing_is_copied_where_device_memory_is_host_memory) {
    cuda_double_options integrated;
    integrated.attributes[cudaDevAttrIntegrated] = 1;
    checked_cuda cuda(integrated);
    cuda_loop loop(cuda, loop_options());
    train(loop);
    EXPECT_EQ(loop.info().placement, EBB_PLACE_KEEP);
    EXPECT_EQ(loop.info().reason, EBB_REASON_INTEGRATED);
    EXPECT_EQ(cuda.calls(cuda_call::memcpy_async) + cuda.calls(cuda_call::memcpy_batch_async), 0U);
    EXPECT_EQ(loop.stats().pinned_peak_bytes, 0U);
}

}  // namespace
}  // namespace ebb::test
