// Device memory of the program's own: a pool in the order of one stream, so that what is freed, by Ebb's giving a
// source up too, is there for what comes next on that stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

namespace step {

class cuda_memory {
public:
    // At most cap_bytes are handed out, less what others hold of them; 0: what the device has.
    cuda_memory(int ordinal, cudaStream_t stream, uint64_t cap_bytes);
    ~cuda_memory();
    cuda_memory(const cuda_memory &) = delete;
    cuda_memory &operator=(const cuda_memory &) = delete;

    // Throws call_failed with EBB_OUT_OF_DEVICE_MEMORY. All must be freed before the pool is.
    std::shared_ptr<void> allocate(uint64_t size_bytes);
    void set_held_by_others(uint64_t size_bytes) { others_bytes_ = size_bytes; }

private:
    cudaStream_t stream_;
    uint64_t cap_bytes_;
    uint64_t used_bytes_ = 0;
    uint64_t others_bytes_ = 0;
    cudaMemPool_t pool_ = nullptr;
};

}  // namespace step
