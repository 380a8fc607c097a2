#include "link/nccl_load.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "link/link_devices.hpp"

namespace ebb::link {

namespace {

constexpr size_t k_floats = 16ULL << 20U;
// Enqueued before the host waits: the GPUs never run dry, and the end is never far.
constexpr int k_at_once = 4;

status of_cuda(cudaError_t error, const char *call) {
    return error == cudaSuccess ? status{}
                                : status{code::device_error, fmt::format("{}: {}", call, cudaGetErrorName(error))};
}

status of_nccl(ncclResult_t error, const char *call) {
    return error == ncclSuccess ? status{}
                                : status{code::device_error, fmt::format("{}: {}", call, ncclGetErrorString(error))};
}

struct rank {
    int ordinal = 0;
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    void *data = nullptr;
};

// Leaves the thread's current device as it was.
class ranks {
public:
    static result<std::shared_ptr<ranks>> make() {
        std::shared_ptr<ranks> made(new ranks());
        EBB_TRY(made->take());
        return made;
    }
    ~ranks() {
        for (rank &r : ranks_) {
            static_cast<void>(cudaSetDevice(r.ordinal));
            if (r.comm != nullptr) {
                static_cast<void>(ncclCommDestroy(r.comm));
            }
            static_cast<void>(cudaFree(r.data));
            if (r.stream != nullptr) {
                static_cast<void>(cudaStreamDestroy(r.stream));
            }
        }
        static_cast<void>(cudaSetDevice(before_));
    }
    ranks(const ranks &) = delete;
    ranks &operator=(const ranks &) = delete;

    status reduce() {
        EBB_TRY(of_nccl(ncclGroupStart(), "ncclGroupStart"));
        for (const rank &r : ranks_) {
            EBB_TRY(of_nccl(ncclAllReduce(r.data, r.data, k_floats, ncclFloat, ncclSum, r.comm, r.stream),
                            "ncclAllReduce"));
        }
        return of_nccl(ncclGroupEnd(), "ncclGroupEnd");
    }
    status finish() {
        for (const rank &r : ranks_) {
            EBB_TRY(of_cuda(cudaStreamSynchronize(r.stream), "cudaStreamSynchronize"));
        }
        return {};
    }

private:
    ranks() = default;
    status take() {
        int count = 0;
        EBB_TRY(of_cuda(cudaGetDevice(&before_), "cudaGetDevice"));
        EBB_TRY(of_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount"));
        std::vector<ncclComm_t> comms(static_cast<size_t>(count));
        EBB_TRY(of_nccl(ncclCommInitAll(comms.data(), count, nullptr), "ncclCommInitAll"));
        for (int ordinal = 0; ordinal < count; ++ordinal) {
            ranks_.push_back({ordinal, comms[static_cast<size_t>(ordinal)], nullptr, nullptr});
        }
        for (rank &r : ranks_) {
            EBB_TRY(of_cuda(cudaSetDevice(r.ordinal), "cudaSetDevice"));
            EBB_TRY(of_cuda(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"));
            EBB_TRY(of_cuda(cudaMalloc(&r.data, k_floats * sizeof(float)), "cudaMalloc"));
            EBB_TRY(of_cuda(cudaMemset(r.data, 0, k_floats * sizeof(float)), "cudaMemset"));
        }
        EBB_TRY(of_cuda(cudaSetDevice(before_), "cudaSetDevice"));
        EBB_TRY(reduce());  // connections are made in the first one
        return finish();
    }

    int before_ = 0;
    std::vector<rank> ranks_;
};

class all_reduces : public running_collectives {
public:
    explicit all_reduces(std::shared_ptr<ranks> on) : on_(std::move(on)), thread_([this] { run(); }) {}
    ~all_reduces() override {
        ends_ = true;
        thread_.join();
    }
    all_reduces(const all_reduces &) = delete;
    all_reduces &operator=(const all_reduces &) = delete;

private:
    void run() {
        while (!ends_) {
            for (int i = 0; i < k_at_once; ++i) {
                if (!on_->reduce().ok()) {
                    return;
                }
            }
            if (!on_->finish().ok()) {
                return;
            }
        }
    }

    std::shared_ptr<ranks> on_;
    std::atomic<bool> ends_{false};
    std::thread thread_;
};

}  // namespace

bool has_nccl() noexcept {
    return true;
}

// Communicators are made when first asked for, and kept.
begin_collectives nccl_collectives() {
    return [kept = std::shared_ptr<ranks>()]() mutable -> result<std::unique_ptr<running_collectives>> {
        if (!kept) {
            result<std::shared_ptr<ranks>> made = ranks::make();
            EBB_TRY(made.why());
            kept = std::move(made).value();
        }
        return std::unique_ptr<running_collectives>(std::make_unique<all_reduces>(kept));
    };
}

}  // namespace ebb::link
