// Sums over the GPUs that train together, by NCCL.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

namespace step {

class collectives {
public:
    collectives() = default;
    virtual ~collectives() = default;
    collectives(const collectives &) = delete;
    collectives &operator=(const collectives &) = delete;

    // values = their average over all GPUs, in place. Called once on each GPU's thread.
    virtual void average(int64_t rank, float *values, int64_t count, cudaStream_t stream) = 0;
    // What they hold of the GPU's memory.
    [[nodiscard]] virtual uint64_t memory_bytes(int64_t rank) const = 0;
    [[nodiscard]] virtual std::string name() const = 0;
    virtual void abort() = 0;
};

// For the first so many GPUs, from one thread. Null where this build has no NCCL.
[[nodiscard]] std::unique_ptr<collectives> make_collectives(int64_t count);

}  // namespace step
