// The benchmark's work on a GPU.
#pragma once

#include <functional>
#include <memory>

#include "device/cuda/cuda_device.hpp"
#include "link/link_cuda.hpp"
#include "link/link_kernels.hpp"

namespace ebb::link {

// Collectives that run until the object is gone.
class running_collectives {
public:
    virtual ~running_collectives() = default;
};
using begin_collectives = std::function<result<std::unique_ptr<running_collectives>>()>;

class cuda_link_kernels : public link_kernels {
public:
    // The thread's current device is the one that `dev` is. `collectives` may be empty: then load::nccl is refused.
    static result<std::unique_ptr<cuda_link_kernels>> make(const link_cuda &cuda, const cuda_device &dev,
                                                           begin_collectives collectives);
    ~cuda_link_kernels() override;

    status close_gate() override;
    status hold(stream_id stream) override;
    status open_gate() override;
    status fill(stream_id stream, void *data, uint64_t size_bytes, uint64_t seed) override;
    result<uint64_t> count_wrong(stream_id stream, const void *data, uint64_t size_bytes, uint64_t seed) override;
    status begin_load(load under) override;
    status end_load() override;

private:
    // What kernels and the host tell each other, in pinned memory.
    struct shared_flags {
        uint32_t gate_open;
        uint32_t gate_gave_up;
        uint32_t load_ends;
        uint32_t wrong;
    };

    cuda_link_kernels(const link_cuda &cuda, const cuda_device &dev, begin_collectives collectives)
        : cuda_(cuda), dev_(dev), begin_collectives_(std::move(collectives)) {}
    status take();

    const link_cuda &cuda_;
    const cuda_device &dev_;
    begin_collectives begin_collectives_;
    shared_flags *flags_ = nullptr;
    cudaStream_t gate_stream_ = nullptr;
    cudaStream_t load_stream_ = nullptr;
    cudaEvent_t gate_passed_ = nullptr;
    std::unique_ptr<running_collectives> collectives_;
};

}  // namespace ebb::link
