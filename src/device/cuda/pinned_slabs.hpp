// Pinned host memory of a CUDA device, on the NUMA node beside it.
//
// Pages of ours, taken by several threads and then registered, are about twice as fast to get as CUDA's own. Where the
// GPU reads through the host's page tables (Grace), registering does not pin them: there CUDA allocates.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "base/status.hpp"
#include "device/cuda/cuda_context.hpp"
#include "device/cuda/numa_nodes.hpp"
#include "device/host/host_pages.hpp"

namespace ebb {

struct pinned_statistics {
    uint64_t mapped_bytes = 0;
    uint64_t maps = 0;
    int32_t numa_node = k_no_node;  // wanted
    std::string node_reason;
    int placing_refusal = 0;         // errno with which the system refused to place memory there; 0: it did not
    uint64_t far_bytes = 0;          // of mapped_bytes, on other nodes, as far as samples show
    bool allocated_by_cuda = false;  // and not registered
};

class pinned_slabs {
public:
    pinned_slabs(cuda_context &context, std::string system_root, uint32_t prefault_threads);
    ~pinned_slabs();
    pinned_slabs(const pinned_slabs &) = delete;
    pinned_slabs &operator=(const pinned_slabs &) = delete;

    // Asks the device and the system where memory belongs.
    status open();
    result<void *> map(uint64_t size_bytes);
    status unmap(void *data, uint64_t size_bytes);
    // Undoes what CUDA knows of, with the device current.
    void give_back_all();

    [[nodiscard]] uint64_t room_bytes() const;
    [[nodiscard]] pinned_statistics statistics() const;
    // What a user should know about where the memory lies; empty when it lies where it belongs.
    [[nodiscard]] std::string note() const;

private:
    struct slab {
        uint64_t size_bytes = 0;
        uint64_t far_bytes = 0;
        host_pages pages;            // of ours, registered
        void *allocation = nullptr;  // of CUDA's
    };
    result<slab> reserve(uint64_t size_bytes, void *&data);
    result<slab> take_pages(uint64_t size_bytes, void *&data);
    result<slab> allocate(uint64_t size_bytes, void *&data);
    status give_back(void *data, const slab &mapped);
    static void unmap_own(const slab &unmapped) noexcept;
    [[nodiscard]] uint64_t far_bytes(const void *data, uint64_t size_bytes) const;
    status refused(cudaError_t error, const char *function, uint64_t size_bytes);

    cuda_context &context_;
    const std::string system_root_;
    const uint32_t prefault_threads_;
    node_choice choice_;
    int placing_refusal_ = 0;
    bool allocated_by_cuda_ = false;
    mutable std::mutex mutex_;
    std::map<void *, slab> slabs_;
    uint64_t mapped_bytes_ = 0;
    uint64_t far_bytes_ = 0;
    uint64_t maps_ = 0;
};

}  // namespace ebb
