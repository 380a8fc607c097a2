// What the part of the program that needs a CUDA toolkit offers to the rest; where it is not built, gpu_missing.cpp
// says so.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "step_device.hpp"

namespace step {

// The GPUs that train together, one thread each.
class gpu_group {
public:
    gpu_group() = default;
    virtual ~gpu_group() = default;
    gpu_group(const gpu_group &) = delete;
    gpu_group &operator=(const gpu_group &) = delete;

    [[nodiscard]] virtual int64_t size() const = 0;
    // One of them has failed: calls that the others wait in return, with errors. A later run begins anew.
    virtual void give_up() = 0;
    // Before the threads of a run: collectives are there.
    virtual void begin_run() = 0;
};

// The first so many, or all (0). Throws std::runtime_error when there are not so many.
[[nodiscard]] std::unique_ptr<gpu_group> make_gpu_group(int64_t count);

struct gpu_options {
    ebb_runtime_options runtime{};
    int64_t steps = 0;
    uint64_t memory_cap_bytes = 0;  // 0: what it has
    std::string attention;          // auto, cudnn or own
    batch_shape batch;
    int64_t heads = 0;
    int64_t head_width = 0;
};

// On the calling thread, which then works with it.
[[nodiscard]] std::unique_ptr<step_device> make_gpu_device(gpu_group &group, int64_t rank, const gpu_options &options);

}  // namespace step
