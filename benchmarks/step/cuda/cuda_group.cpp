// gpu.hpp's functions.
#include <fmt/format.h>

#include <mutex>
#include <stdexcept>
#include <vector>

#include "cuda_calls.hpp"
#include "cuda_step_device.hpp"

namespace step {
namespace {

class cuda_group final : public gpu_group {
public:
    explicit cuda_group(int64_t size) : size_(size), kept_(static_cast<size_t>(size)) {}

    [[nodiscard]] int64_t size() const override { return size_; }

    void begin_run() override {
        if (sums_ == nullptr || given_up_) {
            sums_ = make_collectives(size_);
            given_up_ = false;
            for (cuda_step_device::kept &of_gpu : kept_) {
                of_gpu.sums = sums_.get();
            }
        }
    }
    void give_up() override {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (size_ > 1 && !given_up_) {
            given_up_ = true;
            sums_->abort();
        }
    }
    [[nodiscard]] cuda_step_device::kept &kept_of(int64_t rank) { return kept_[static_cast<size_t>(rank)]; }

private:
    int64_t size_;
    std::unique_ptr<collectives> sums_;
    std::vector<cuda_step_device::kept> kept_;
    std::mutex mutex_;
    bool given_up_ = false;
};

}  // namespace

std::unique_ptr<gpu_group> make_gpu_group(int64_t count) {
    int present = 0;
    if (const cudaError_t error = cudaGetDeviceCount(&present); error != cudaSuccess || present == 0) {
        const cudaError_t why = error == cudaSuccess ? cudaErrorNoDevice : error;
        throw std::runtime_error(fmt::format("--device cuda: no GPU can be used here: {}, {}; use --device host",
                                             cudaGetErrorName(why), cudaGetErrorString(why)));
    }
    if (count > present) {
        throw std::runtime_error(fmt::format("--gpus {}: there {} {}", count, present == 1 ? "is" : "are", present));
    }
    const int64_t size = count == 0 ? present : count;
    auto group = std::make_unique<cuda_group>(size);
    group->begin_run();
    if (size > 1 && group->kept_of(0).sums == nullptr) {
        throw std::runtime_error(
            fmt::format("--gpus {}: this build found no NCCL, without which GPUs cannot train together", size));
    }
    return group;
}

std::unique_ptr<step_device> make_gpu_device(gpu_group &group, int64_t rank, const gpu_options &options) {
    check(cudaSetDevice(static_cast<int>(rank)), "cudaSetDevice");
    gpu_options own = options;
    own.runtime.device = "cuda";
    own.runtime.device_ordinal = static_cast<int32_t>(rank);
    return std::make_unique<cuda_step_device>(own, static_cast<cuda_group &>(group).kept_of(rank), rank);
}

}  // namespace step
