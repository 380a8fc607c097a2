#include "cuda_step_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "cuda_calls.hpp"

namespace step {
namespace {

// Times copies of that many bytes between pinned and device memory.
class copy_timer {
public:
    explicit copy_timer(cudaStream_t stream, void *device_memory, size_t size_bytes)
        : stream_(stream), device_memory_(device_memory), size_bytes_(size_bytes) {
        check(cudaHostAlloc(&host_memory_, size_bytes, cudaHostAllocDefault), "cudaHostAlloc");
        for (cudaEvent_t *event : {&begin_, &end_}) {
            check(cudaEventCreate(event), "cudaEventCreate");
        }
    }
    ~copy_timer() {
        cudaStreamSynchronize(stream_);
        cudaEventDestroy(begin_);
        cudaEventDestroy(end_);
        cudaFreeHost(host_memory_);
    }
    copy_timer(const copy_timer &) = delete;
    copy_timer &operator=(const copy_timer &) = delete;

    // The best of a few, in bytes per second.
    double rate(cudaMemcpyKind kind) {
        constexpr int k_repetitions = 5;
        float best_ms = 0;
        for (int i = 0; i < k_repetitions; ++i) {
            const bool out = kind == cudaMemcpyDeviceToHost;
            check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
            check(cudaMemcpyAsync(out ? host_memory_ : device_memory_, out ? device_memory_ : host_memory_, size_bytes_,
                                  kind, stream_),
                  "cudaMemcpyAsync");
            check(cudaEventRecord(end_, stream_), "cudaEventRecord");
            check(cudaEventSynchronize(end_), "cudaEventSynchronize");
            float ms = 0;
            check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
            best_ms = i == 0 ? ms : std::min(best_ms, ms);
        }
        return static_cast<double>(size_bytes_) / (static_cast<double>(best_ms) * 1e-3);
    }

private:
    cudaStream_t stream_;
    void *device_memory_;
    void *host_memory_ = nullptr;
    size_t size_bytes_;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

std::string name_of(int64_t ordinal) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, static_cast<int>(ordinal)), "cudaGetDeviceProperties");
    return properties.name;
}

}  // namespace

cuda_step_device::cuda_step_device(const gpu_options &options, kept &from_run_to_run, int64_t rank)
    : kept_(from_run_to_run),
      rank_(rank),
      facts_{name_of(rank), "", kept_.sums == nullptr ? "none: this build found no NCCL" : kept_.sums->name(), ""},
      training_(options.runtime, options.steps, options.memory_cap_bytes, allocator_of(memory_kind::activations)),
      products_workspace_(allocate(memory_kind::scratch, cuda_products::k_workspace_bytes)),
      products_(training_.compute(), products_workspace_.get(), cuda_products::k_workspace_bytes),
      scratch_(allocator_of(memory_kind::scratch)),
      attention_workspace_(allocator_of(memory_kind::attention_workspace)),
      math_(training_.compute(), products_, choose_attention(options), scratch_) {
    check(cudaStreamCreateWithFlags(&collective_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    for (cudaEvent_t *event : {&ready_, &summed_}) {
        check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    }
    if (kept_.sums != nullptr) {
        account().set(memory_kind::collectives, kept_.sums->memory_bytes(rank_));
    }
}

cuda_step_device::~cuda_step_device() {
    for (cudaEvent_t const event : {ready_, summed_}) {
        if (event != nullptr) {
            cudaEventDestroy(event);
        }
    }
    if (collective_ != nullptr) {
        cudaStreamDestroy(collective_);
    }
}

cuda_attention &cuda_step_device::choose_attention(const gpu_options &options) {
    const attention_tools tools{training_.compute(), &products_, &attention_workspace_};
    if (options.attention != "own") {
        try {
            attention_call shape{};
            shape.batch = options.batch;
            shape.heads = options.heads;
            shape.head_width = options.head_width;
            if (kept_.attention == nullptr) {
                kept_.attention = make_cudnn_attention();
            }
            kept_.attention->use(tools, shape);
            facts_.attention = kept_.attention->name();
            return *kept_.attention;
        } catch (const std::exception &failure) {
            if (options.attention == "cudnn") {
                throw std::runtime_error(std::string("--attention cudnn: ") + failure.what());
            }
            facts_.note = std::string("attention is our own, not cuDNN's: ") + failure.what();
        }
    }
    facts_.attention = "own";
    own_attention_ = make_own_attention(tools);
    return *own_attention_;
}

std::shared_ptr<void> cuda_step_device::allocate(memory_kind kind, uint64_t size_bytes) {
    training_.memory().set_held_by_others(account().held()[static_cast<size_t>(memory_kind::staging)]);
    return counted(kind, size_bytes, training_.memory().allocate(size_bytes));
}

void cuda_step_device::upload(void *to, const void *from, uint64_t size_bytes) {
    check(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyHostToDevice, training_.compute()), "cudaMemcpyAsync");
    training_.synchronize();
}

void cuda_step_device::download(void *to, const void *from, uint64_t size_bytes) {
    check(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToHost, training_.compute()), "cudaMemcpyAsync");
    training_.synchronize();
}

ebb_stream cuda_step_device::collective_stream() {
    return reinterpret_cast<uintptr_t>(collective_);
}

void cuda_step_device::begin_collective() {
    check(cudaEventRecord(ready_, training_.compute()), "cudaEventRecord");
    check(cudaStreamWaitEvent(collective_, ready_, 0), "cudaStreamWaitEvent");
}

void cuda_step_device::average(float *values, int64_t count) {
    if (kept_.sums != nullptr) {
        kept_.sums->average(rank_, values, count, collective_);
    }
}

void cuda_step_device::wait_for_collectives() {
    check(cudaEventRecord(summed_, collective_), "cudaEventRecord");
    check(cudaStreamWaitEvent(training_.compute(), summed_, 0), "cudaStreamWaitEvent");
}

uint64_t cuda_step_device::peak_used_bytes() {
    size_t free = 0;
    size_t all = 0;
    check(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
    peak_used_bytes_ = std::max<uint64_t>(peak_used_bytes_, all - free);
    return peak_used_bytes_;
}

copy_rates cuda_step_device::measure_copies() {
    constexpr uint64_t k_bytes = 256ULL << 20U;
    const std::shared_ptr<void> memory = allocate(memory_kind::scratch, k_bytes);
    copy_timer timer(training_.compute(), memory.get(), k_bytes);
    const double out = timer.rate(cudaMemcpyDeviceToHost);
    return {out, timer.rate(cudaMemcpyHostToDevice)};
}

}  // namespace step
