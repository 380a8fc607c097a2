// Where pinned memory lies on this machine, and that forked children do not have it.
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_runtime_table.hpp"
#include "device/host/host_pages.hpp"

namespace ebb::test {
namespace {

constexpr uint64_t k_bytes = 256ULL << 20U;

class pinned_memory : public ::testing::Test {
protected:
    void SetUp() override {
        result<std::unique_ptr<cuda_device>> made = cuda_device::make(cuda_runtime_table(), 0, {});
        ASSERT_TRUE(made.ok()) << made.why().text();
        dev_ = std::move(made).value();
        const result<void *> mapped = dev_->map_host(k_bytes);
        ASSERT_TRUE(mapped.ok()) << mapped.why().text();
        data_ = static_cast<char *>(mapped.value());
    }
    void TearDown() override {
        if (data_ != nullptr) {
            EXPECT_TRUE(dev_->unmap_host(data_, k_bytes).ok());
        }
    }

    std::unique_ptr<cuda_device> dev_;
    char *data_ = nullptr;
};

// How many of the pages lie on which node, as the kernel says; a negative number is an errno.
std::map<int, size_t> nodes_of(char *data, uint64_t size_bytes) {
    const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    std::vector<void *> pages;
    for (uint64_t at = 0; at < size_bytes; at += page_bytes) {
        pages.push_back(data + at);
    }
    std::vector<int> nodes(pages.size());
    std::map<int, size_t> counts;
    if (syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, nodes.data(), 0) != 0) {
        counts[-errno] = pages.size();
        return counts;
    }
    for (const int node : nodes) {
        ++counts[node];
    }
    return counts;
}

TEST_F(pinned_memory, lies_on_the_node_beside_the_gpu) {
    const pinned_statistics pinned = dev_->statistics().pinned;
    const std::map<int, size_t> counts = nodes_of(data_, k_bytes);
    for (const auto &[node, pages] : counts) {
        std::cout << "node " << node << ": " << pages << " pages; wanted: node " << pinned.numa_node << ", "
                  << pinned.node_reason << "\n";
        // Every page is there: registering has touched them all.
        EXPECT_GE(node, 0) << "move_pages: " << std::strerror(-node);
    }
    if (pinned.numa_node != k_no_node) {
        EXPECT_EQ(pinned.placing_refusal, 0) << std::strerror(pinned.placing_refusal);
        EXPECT_EQ(counts.size(), 1U);
        EXPECT_TRUE(counts.count(pinned.numa_node) == 1) << "pages lie elsewhere";
        EXPECT_EQ(pinned.far_bytes, 0U);
    }
}

// Whether the range is mapped in this process.
bool is_mapped(char *data, uint64_t size_bytes) {
    std::vector<unsigned char> resident(size_bytes / static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
    return mincore(data, size_bytes, resident.data()) == 0;
}

TEST_F(pinned_memory, is_not_in_forked_children_and_goes_on_working_in_the_parent) {
    ASSERT_TRUE(is_mapped(data_, k_bytes));
    if (dev_->statistics().pinned.allocated_by_cuda) {
        std::cout << "CUDA allocates pinned memory on this machine, and says itself what children have of it\n";
        return;
    }
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        _exit(is_mapped(data_, k_bytes) ? 1 : 0);  // no CUDA in here
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child has the slab";

    const stream_id stream = dev_->create_stream(stream_role::h2d).value();
    void *there = dev_->alloc_device(k_bytes / 2).value();
    for (uint64_t at = 0; at < k_bytes / 2; at += 4096) {
        std::memcpy(data_ + at, &at, sizeof at);
    }
    ASSERT_TRUE(dev_->copy(stream, copy_direction::h2d, there, data_, k_bytes / 2).ok());
    ASSERT_TRUE(dev_->copy(stream, copy_direction::d2h, data_ + k_bytes / 2, there, k_bytes / 2).ok());
    const event_id done = dev_->create_event(event_kind::plain).value();
    ASSERT_TRUE(dev_->record_event(done, stream).ok());
    ASSERT_TRUE(dev_->synchronize_event(done).ok());
    EXPECT_EQ(std::memcmp(data_, data_ + k_bytes / 2, k_bytes / 2), 0);
    EXPECT_TRUE(dev_->destroy_event(done).ok());
    EXPECT_TRUE(dev_->free_device(there, k_bytes / 2).ok());
    EXPECT_TRUE(dev_->destroy_stream(stream).ok());
}

}  // namespace
}  // namespace ebb::test
