// A device, a runtime of Ebb on it through the C ABI, and memory for all cells.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "device/host/host_device.hpp"
#include "ebb/ebb.h"
#include "link/link_cell.hpp"
#include "link/link_kernels.hpp"
#include "link/slot_pool.hpp"

namespace ebb::link {

// What a call of the C ABI said, as a status.
[[nodiscard]] status of_ebb(ebb_status returned, const char *call);

// Calls to CUDA by the calling thread, and the time that it spent inside them.
struct call_totals {
    uint64_t calls = 0, ns = 0;
    uint64_t copy_calls = 0, copy_ns = 0;  // of them, cudaMemcpyAsync
};

// Whoever makes the device also knows what runs on it.
struct link_device {
    std::unique_ptr<device> dev;
    host_device *host = nullptr;  // when it is the host device
    std::unique_ptr<link_kernels> kernels;
    std::function<call_totals()> cuda_calls;                   // empty where nothing goes to CUDA
    std::vector<std::pair<std::string, std::string>> context;  // what a reader of the figures wants to know
};

class link_rig {
public:
    // Memory for the largest of these cells.
    static result<std::unique_ptr<link_rig>> make(link_device on, const std::vector<link_cell> &cells);
    ~link_rig();
    link_rig(const link_rig &) = delete;
    link_rig &operator=(const link_rig &) = delete;

    [[nodiscard]] device &dev() const { return *dev_; }
    [[nodiscard]] link_kernels &kernels() const { return *kernels_; }
    [[nodiscard]] ebb_runtime *runtime() const { return runtime_; }
    [[nodiscard]] slot_pool &slots() { return *slots_; }
    [[nodiscard]] char *device_memory() const { return device_memory_; }
    [[nodiscard]] char *pinned_memory() const { return pinned_memory_; }

    // Until drop_streams.
    result<stream_id> new_stream();
    status drop_streams();
    // Notes when the stream gets there; marks are told by number, and forgotten by the next forget_marks.
    result<uint64_t> mark(stream_id stream);
    result<uint64_t> ns_between(uint64_t start, uint64_t end);
    void forget_marks() { used_marks_ = 0; }
    status finish(stream_id stream);

private:
    link_rig() = default;
    status take_memory(const cell_memory &wanted);
    status create_runtime(std::unique_ptr<device> dev, host_device *host);

    device *dev_ = nullptr;  // the runtime's
    ebb_runtime *runtime_ = nullptr;
    std::unique_ptr<slot_pool> slots_ = std::make_unique<slot_pool>();
    std::unique_ptr<link_kernels> kernels_;
    char *device_memory_ = nullptr;
    char *pinned_memory_ = nullptr;
    cell_memory held_;
    std::vector<stream_id> streams_;
    std::vector<event_id> marks_;
    uint64_t used_marks_ = 0;
};

}  // namespace ebb::link
