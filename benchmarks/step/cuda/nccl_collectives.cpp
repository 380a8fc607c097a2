#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <vector>

#include "collectives.hpp"
#include "cuda_calls.hpp"

namespace step {
namespace {

void check(ncclResult_t result, const char *call) {
    if (result != ncclSuccess) {
        throw train::call_failed(EBB_DEVICE_ERROR, call, ncclGetErrorString(result));
    }
}

uint64_t free_bytes(int ordinal) {
    size_t free = 0;
    size_t all = 0;
    step::check(cudaSetDevice(ordinal), "cudaSetDevice");
    step::check(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
    return free;
}

class nccl_collectives final : public collectives {
public:
    explicit nccl_collectives(int64_t count) : communicators_(static_cast<size_t>(count)) {
        for (int ordinal = 0; ordinal < static_cast<int>(count); ++ordinal) {
            held_bytes_.push_back(free_bytes(ordinal));
        }
        check(ncclCommInitAll(communicators_.data(), static_cast<int>(count), nullptr), "ncclCommInitAll");
        use_once();
        for (int ordinal = 0; ordinal < static_cast<int>(count); ++ordinal) {
            uint64_t &held = held_bytes_[static_cast<size_t>(ordinal)];
            held -= std::min(held, free_bytes(ordinal));
        }
    }
    ~nccl_collectives() override {
        for (ncclComm_t c : communicators_) {
            if (!aborted_) {
                ncclCommDestroy(c);
            }
        }
    }

    void average(int64_t rank, float *values, int64_t count, cudaStream_t stream) override {
        if (aborted_) {
            throw std::runtime_error("another GPU that trains together with this one has failed");
        }
        check(ncclAllReduce(values, values, static_cast<size_t>(count), ncclFloat, ncclAvg,
                            communicators_[static_cast<size_t>(rank)], stream),
              "ncclAllReduce");
    }
    [[nodiscard]] uint64_t memory_bytes(int64_t rank) const override { return held_bytes_[static_cast<size_t>(rank)]; }
    [[nodiscard]] std::string name() const override {
        int version = 0;
        ncclGetVersion(&version);
        return fmt::format("NCCL {}, {} GPU{}", version, communicators_.size(), communicators_.size() == 1 ? "" : "s");
    }
    void abort() override {
        aborted_ = true;
        for (ncclComm_t c : communicators_) {
            ncclCommAbort(c);
        }
    }

private:
    // Buffers are allocated in the first call.
    void use_once() {
        std::vector<float *> values(communicators_.size());
        for (size_t i = 0; i < values.size(); ++i) {
            step::check(cudaSetDevice(static_cast<int>(i)), "cudaSetDevice");
            step::check(cudaMalloc(&values[i], sizeof(float)), "cudaMalloc");
        }
        check(ncclGroupStart(), "ncclGroupStart");
        for (size_t i = 0; i < values.size(); ++i) {
            average(static_cast<int64_t>(i), values[i], 1, cudaStreamPerThread);
        }
        check(ncclGroupEnd(), "ncclGroupEnd");
        for (size_t i = 0; i < values.size(); ++i) {
            step::check(cudaSetDevice(static_cast<int>(i)), "cudaSetDevice");
            step::check(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
            step::check(cudaFree(values[i]), "cudaFree");
        }
    }

    std::vector<ncclComm_t> communicators_;
    std::vector<uint64_t> held_bytes_;
    std::atomic<bool> aborted_{false};
};

}  // namespace

std::unique_ptr<collectives> make_collectives(int64_t count) {
    return std::make_unique<nccl_collectives>(count);
}

}  // namespace step
