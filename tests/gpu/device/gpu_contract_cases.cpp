// The device contract on the GPU: the CUDA backend with CUDA's own functions.
#include <cstring>

#include "contract/contract_devices.hpp"
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_runtime_table.hpp"
#include "gpu_kernels.hpp"
#include "gpu_test_main.hpp"

namespace ebb {

namespace {

// What streams stand at: words of pinned memory. Taken before anything stands, since taking it may wait for the device,
// and kept, since a kernel may look at one after the test let it pass.
class standing_flags {
public:
    standing_flags() {
        void *memory = nullptr;
        EXPECT_EQ(cudaHostAlloc(&memory, k_count * sizeof(uint32_t), cudaHostAllocDefault), cudaSuccess);
        words_ = static_cast<uint32_t *>(memory);
        std::memset(words_, 0, k_count * sizeof(uint32_t));
    }
    ~standing_flags() {
        EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        EXPECT_EQ(cudaFreeHost(words_), cudaSuccess);
    }
    standing_flags(const standing_flags &) = delete;
    standing_flags &operator=(const standing_flags &) = delete;

    uint32_t *next() {
        EXPECT_LT(used_, k_count);
        return words_ + used_++ % k_count;
    }

private:
    static constexpr size_t k_count = 16;
    uint32_t *words_ = nullptr;
    size_t used_ = 0;
};

device_stack make_gpu() {
    device_stack stack;
    result<std::unique_ptr<cuda_device>> made = cuda_device::make(cuda_runtime_table(), 0, {});
    EXPECT_TRUE(made.ok()) << made.why().text();
    cuda_device &added = stack.put(std::move(made).value());
    auto flags = std::make_shared<standing_flags>();
    stack.ground = flags;
    stack.block = [&added, flags](stream_id stream) {
        uint32_t *flag = flags->next();
        EXPECT_EQ(test::launch_wait(added.native_stream(stream).value(), flag), cudaSuccess);
        return std::function<void()>([flag] { __atomic_store_n(flag, 1U, __ATOMIC_RELEASE); });
    };
    return stack;
}

}  // namespace

std::vector<contract_case> contract_cases() {
    contract_case gpu;
    gpu.name = "gpu";
    gpu.make = make_gpu;
    gpu.heap_allocations_per_block = 1;
    // CUDA rounds, keeps pieces for itself, and tells what is free to a few megabytes.
    gpu.memory_slack_bytes = 2ULL << 30U;
    // What could be a cudaStream_t is taken for one: CUDA has no way to ask.
    gpu.bad_streams = {3, 12345, 4097, ~uint64_t{0}, uint64_t{0xEB} << 56U, uint64_t{1} << 60U};
    return {gpu};
}

namespace test {

cudaError_t prepare_gpu() {
    return load_all_kernels();
}

int run_as_child(const char * /*what*/) {
    return 2;
}

}  // namespace test
}  // namespace ebb
