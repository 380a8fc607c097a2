#include "cuda_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuda_calls.hpp"

namespace step {

cuda_memory::cuda_memory(int ordinal, cudaStream_t stream, uint64_t cap_bytes)
    : stream_(stream), cap_bytes_(cap_bytes) {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = ordinal;
    check(cudaMemPoolCreate(&pool_, &properties), "cudaMemPoolCreate");
    uint64_t keep_all = ~uint64_t{0};
    check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep_all), "cudaMemPoolSetAttribute");
}

cuda_memory::~cuda_memory() {
    cudaStreamSynchronize(stream_);
    cudaMemPoolDestroy(pool_);
}

std::shared_ptr<void> cuda_memory::allocate(uint64_t size_bytes) {
    if (cap_bytes_ != 0 && used_bytes_ + others_bytes_ + size_bytes > cap_bytes_) {
        throw train::call_failed(EBB_OUT_OF_DEVICE_MEMORY, "allocating on the GPU",
                                 fmt::format("{} bytes wanted, {} of {} (--device-memory) held", size_bytes,
                                             used_bytes_ + others_bytes_, cap_bytes_));
    }
    void *data = nullptr;
    check(cudaMallocFromPoolAsync(&data, std::max<uint64_t>(size_bytes, 1), pool_, stream_), "cudaMallocFromPoolAsync");
    used_bytes_ += size_bytes;
    return {data, [this, size_bytes](void *memory) {
                used_bytes_ -= size_bytes;
                cudaFreeAsync(memory, stream_);  // fails only after something else did, which is reported
            }};
}

}  // namespace step
