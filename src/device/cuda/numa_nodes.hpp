// NUMA nodes: which one pinned memory of a GPU belongs on, and putting memory there. By system calls and files alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ebb {

constexpr int32_t k_no_node = -1;

struct node_choice {
    int32_t node = k_no_node;  // none: the system does not say, or has one node only, and there is nothing to choose
    std::string reason;        // of the choice, for people
    std::vector<int> cpus;     // of the node
};

// device_node: what CUDA says is the host node closest to the GPU (cudaDevAttrHostNumaId), k_no_node when it says
// nothing; then the node of the PCI device counts ("0000:3B:00.0"). A node without CPUs is a GPU's own memory (GB200):
// then it is the nearest one that has some. Files are read below system_root.
[[nodiscard]] node_choice choose_host_node(const std::string &system_root, int32_t device_node,
                                           const std::string &pci_bus_id);

// Pages of the range that are taken from here on come from the node while it has any. 0, or the errno of a refusal
// (containers refuse it without CAP_SYS_NICE).
[[nodiscard]] int prefer_node(void *data, uint64_t size_bytes, int32_t node) noexcept;

// The node that the page of an address lies on; k_no_node where the system does not say.
[[nodiscard]] int32_t node_of_page(const void *data) noexcept;

// While it lives, memory that the system takes for the calling thread comes from the node. For memory that a driver
// allocates.
class thread_node_scope {
public:
    explicit thread_node_scope(int32_t node) noexcept;
    ~thread_node_scope();
    thread_node_scope(const thread_node_scope &) = delete;
    thread_node_scope &operator=(const thread_node_scope &) = delete;

    [[nodiscard]] int refusal() const noexcept { return refusal_; }  // errno, 0: none

private:
    static constexpr uint32_t k_mask_words = 16;
    int refusal_ = 0;
    int mode_ = 0;
    unsigned long mask_[k_mask_words] = {};
};

// "0-3,8,10-11" as numbers; what is malformed is left out.
[[nodiscard]] std::vector<int> parse_number_list(const std::string &text);

}  // namespace ebb
