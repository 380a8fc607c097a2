#include "device/cuda/pinned_slabs.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "fake_cuda.hpp"
#include "fake_system.hpp"

namespace ebb {
namespace {

constexpr uint64_t k_mib = 1ULL << 20U;

class pinned_slabs_of : public ::testing::Test {
protected:
    void TearDown() override {
        if (slabs_ != nullptr) {
            slabs_->give_back_all();
        }
    }
    pinned_slabs &open() {
        TearDown();
        slabs_ = std::make_unique<pinned_slabs>(context_, system_.root(), 2);
        const status opened = slabs_->open();
        EXPECT_TRUE(opened.ok()) << opened.text();
        return *slabs_;
    }
    void two_nodes() const {
        system_.write("/sys/devices/system/node/online", "0,1000\n");
        system_.write("/sys/devices/system/node/node0/cpulist", "0-3\n");
        system_.write("/sys/devices/system/node/node1000/cpulist", "4-7\n");
    }
    static bool is_mapped(void *data) {
        unsigned char in_core = 0;
        return mincore(data, 1, &in_core) == 0;
    }

    fake_cuda cuda_;
    fake_system system_;
    cuda_context context_{cuda_.api, 0};
    std::unique_ptr<pinned_slabs> slabs_;
};

TEST_F(pinned_slabs_of, pages_are_ours_and_registered_for_all_devices) {
    pinned_slabs &slabs = open();
    const result<void *> mapped = slabs.map(3 * k_mib + 5);
    ASSERT_TRUE(mapped.ok()) << mapped.why().text();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(mapped.value()) % (2 * k_mib), 0U);
    ASSERT_EQ(cuda_.host_flags.size(), 1U);
    EXPECT_EQ(cuda_.host_flags[0], unsigned{cudaHostRegisterPortable | cudaHostRegisterMapped});
    EXPECT_EQ(slabs.statistics().mapped_bytes, 3 * k_mib + 5);
    EXPECT_EQ(slabs.statistics().maps, 1U);
    EXPECT_FALSE(slabs.statistics().allocated_by_cuda);
    EXPECT_TRUE(cuda_.pushed.empty());
    EXPECT_EQ(cuda_.mode, cudaStreamCaptureModeGlobal);
    EXPECT_FALSE(slabs.unmap(mapped.value(), 3 * k_mib).ok());
    EXPECT_TRUE(slabs.unmap(mapped.value(), 3 * k_mib + 5).ok());
    EXPECT_EQ(cuda_.calls["host_unregister"], 1);
    EXPECT_FALSE(is_mapped(mapped.value()));
    EXPECT_EQ(slabs.unmap(mapped.value(), 3 * k_mib + 5).code(), code::invalid_argument);
    EXPECT_EQ(slabs.statistics().mapped_bytes, 0U);
}

TEST_F(pinned_slabs_of, a_forked_child_does_not_have_them) {
    pinned_slabs &slabs = open();
    void *data = slabs.map(4 * k_mib).value();
    const auto in_child = [](void *probed) {
        const pid_t child = fork();
        if (child == 0) {
            _exit(is_mapped(probed) ? 1 : 0);
        }
        int ended = -1;
        waitpid(child, &ended, 0);
        return WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
    };
    EXPECT_EQ(in_child(data), 0);
    EXPECT_EQ(in_child(static_cast<char *>(data) + 4 * k_mib - 4096), 0);
    const host_pages ordinary = map_pages(4 * k_mib, 1).value();
    EXPECT_EQ(in_child(ordinary.data), 1) << "the probe sees what a child has";
    unmap_pages(ordinary);
}

TEST_F(pinned_slabs_of, refused_pinning_is_named_as_what_it_is) {
    pinned_slabs &slabs = open();
    ASSERT_TRUE(slabs.map(k_mib).ok());
    cuda_.failures["host_register"] = cudaErrorMemoryAllocation;
    const status refused = slabs.map(2 * k_mib).why();
    EXPECT_EQ(refused.code(), code::out_of_host_memory);
    for (const char *part : {"2097152 bytes wanted", "1048576 bytes pinned for this device before", "cudaHostRegister",
                             "cudaErrorMemoryAllocation", "EBB_HOST_BYTES"}) {
        EXPECT_NE(refused.text().find(part), std::string::npos) << part << " in: " << refused.text();
    }
    EXPECT_EQ(refused.text().find("WSL"), std::string::npos);
    EXPECT_EQ(cuda_.last_error, cudaSuccess) << "our failure is not left to the caller";
    EXPECT_EQ(slabs.statistics().mapped_bytes, k_mib);
    cuda_.failures.clear();
    EXPECT_TRUE(slabs.map(2 * k_mib).ok());
}

TEST_F(pinned_slabs_of, on_wsl_the_advice_is_another) {
    system_.write("/proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n");
    pinned_slabs &slabs = open();
    cuda_.failures["host_register"] = cudaErrorMemoryAllocation;
    EXPECT_NE(slabs.map(k_mib).why().text().find("WSL"), std::string::npos);
}

TEST_F(pinned_slabs_of, the_control_groups_limit_comes_first) {
    system_.write("/proc/self/cgroup", "0::/job\n");
    system_.write("/sys/fs/cgroup/job/memory.max", "100000000\n");
    system_.write("/sys/fs/cgroup/job/memory.current", "0\n");
    pinned_slabs &slabs = open();
    EXPECT_EQ(slabs.room_bytes(), 95000000U);
    const status refused = slabs.map(95000001).why();
    EXPECT_EQ(refused.code(), code::out_of_host_memory);
    EXPECT_NE(refused.text().find("/sys/fs/cgroup/job/memory.max"), std::string::npos) << refused.text();
    EXPECT_EQ(cuda_.calls["host_register"], 0);
    EXPECT_EQ(slabs.map(0).why().code(), code::invalid_argument);
}

TEST_F(pinned_slabs_of, without_limits_an_absurd_size_is_refused_all_the_same) {
    for (const int grace : {0, 1}) {
        cuda_.attributes[cudaDevAttrPageableMemoryAccessUsesHostPageTables] = grace;
        pinned_slabs &slabs = open();
        for (const uint64_t size_bytes : {~uint64_t{0}, ~uint64_t{0} - 511, uint64_t{1} << 63U}) {
            EXPECT_EQ(slabs.map(size_bytes).why().code(), code::out_of_host_memory);
        }
    }
}

// Node 1000 is none that a machine has: the real system refuses it, as it does everything in many containers.
TEST_F(pinned_slabs_of, refused_placing_falls_back_and_is_reported_once) {
    two_nodes();
    cuda_.attributes[cudaDevAttrHostNumaId] = 1000;
    pinned_slabs &slabs = open();
    EXPECT_EQ(slabs.statistics().numa_node, 1000);
    EXPECT_NE(slabs.statistics().placing_refusal, 0);
    EXPECT_NE(slabs.note().find("NUMA node 1000"), std::string::npos) << slabs.note();
    const result<void *> mapped = slabs.map(2 * k_mib);
    ASSERT_TRUE(mapped.ok()) << mapped.why().text();
    if (node_of_page(mapped.value()) != k_no_node) {
        EXPECT_EQ(slabs.statistics().far_bytes, 2 * k_mib);
    }
    EXPECT_TRUE(slabs.unmap(mapped.value(), 2 * k_mib).ok());
    EXPECT_EQ(slabs.statistics().far_bytes, 0U);
}

TEST_F(pinned_slabs_of, what_lies_where_it_belongs_needs_no_note) {
    two_nodes();
    cuda_.attributes[cudaDevAttrHostNumaId] = 0;
    pinned_slabs &slabs = open();
    if (slabs.statistics().placing_refusal != 0) {
        GTEST_SKIP() << "this system lets nobody place memory";
    }
    EXPECT_TRUE(slabs.note().empty());
    ASSERT_TRUE(slabs.map(2 * k_mib).ok());
    EXPECT_EQ(slabs.statistics().far_bytes, 0U);
}

TEST_F(pinned_slabs_of, where_registering_does_not_pin_cuda_allocates) {
    cuda_.attributes[cudaDevAttrPageableMemoryAccessUsesHostPageTables] = 1;
    cuda_.misalign_bytes = 64;
    pinned_slabs &slabs = open();
    const result<void *> mapped = slabs.map(k_mib + 1);
    ASSERT_TRUE(mapped.ok()) << mapped.why().text();
    EXPECT_TRUE(slabs.statistics().allocated_by_cuda);
    EXPECT_EQ(cuda_.calls["host_register"], 0);
    ASSERT_EQ(cuda_.host_flags.size(), 1U);
    EXPECT_EQ(cuda_.host_flags[0], unsigned{cudaHostAllocPortable | cudaHostAllocMapped});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(mapped.value()) % 4096, 0U);
    const auto *bytes = static_cast<const unsigned char *>(mapped.value());
    EXPECT_TRUE(std::all_of(bytes, bytes + k_mib + 1, [](unsigned char byte) { return byte == 0; }));
    EXPECT_TRUE(slabs.unmap(mapped.value(), k_mib + 1).ok());
    EXPECT_EQ(cuda_.calls["free_host"], 1);
    cuda_.failures["host_alloc"] = cudaErrorMemoryAllocation;
    EXPECT_NE(slabs.map(k_mib).why().text().find("cudaHostAlloc failed with cudaErrorMemoryAllocation"),
              std::string::npos);
}

// The GPU may still write to pages that CUDA did not let go of.
TEST_F(pinned_slabs_of, pages_that_stay_registered_stay_mapped) {
    pinned_slabs &slabs = open();
    void *data = slabs.map(k_mib).value();
    cuda_.failures["host_unregister"] = cudaErrorInvalidValue;
    EXPECT_EQ(slabs.unmap(data, k_mib).code(), code::device_error);
    EXPECT_TRUE(is_mapped(data));
    munmap(data, k_mib);
}

TEST_F(pinned_slabs_of, pages_of_a_lost_device_are_given_back) {
    pinned_slabs &slabs = open();
    void *data = slabs.map(k_mib).value();
    void *left = slabs.map(k_mib).value();
    EXPECT_FALSE(context_.errors.failure(cudaErrorIllegalAddress, "cudaMemcpyAsync", "a copy").ok());
    const int calls = cuda_.all_calls;
    EXPECT_TRUE(slabs.unmap(data, k_mib).ok());
    EXPECT_FALSE(is_mapped(data));
    EXPECT_EQ(slabs.map(k_mib).why().code(), code::device_error);
    slabs_.reset();
    EXPECT_FALSE(is_mapped(left));
    EXPECT_EQ(cuda_.all_calls, calls);
}

// Where touching threads are moved to a node's CPUs, the calling thread stays where it was.
TEST(touched_pages, the_calling_thread_is_not_moved) {
    cpu_set_t before;
    ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    int first = 0;
    while (CPU_ISSET(static_cast<size_t>(first), &before) == 0) {
        ++first;
    }
    const host_pages pages = reserve_pages(130 * k_mib).value();
    EXPECT_TRUE(touch_pages(pages, 2, {first}).ok());
    EXPECT_TRUE(touch_pages(pages, 2, {first, 100000, -1}).ok());
    cpu_set_t after;
    ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
    std::vector<unsigned char> in_core(pages.size_bytes / 4096);
    ASSERT_EQ(mincore(pages.data, pages.size_bytes, in_core.data()), 0);
    EXPECT_TRUE(std::all_of(in_core.begin(), in_core.end(), [](unsigned char page) { return (page & 1U) != 0; }));
    unmap_pages(pages);
}

}  // namespace
}  // namespace ebb
