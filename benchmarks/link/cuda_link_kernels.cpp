#include "link/cuda_link_kernels.hpp"

#include <fmt/format.h>

#include <atomic>
#include <utility>

namespace ebb::link {

namespace {

status of_cuda(cudaError_t error, const char *call) {
    if (error == cudaSuccess) {
        return {};
    }
    return {code::device_error, fmt::format("{}: CUDA error {}", call, static_cast<int>(error))};
}

// Kernels look at it while it changes.
void set(uint32_t &flag, uint32_t value) {
    std::atomic_ref<uint32_t>(flag).store(value, std::memory_order_seq_cst);
}

uint32_t get(uint32_t &flag) {
    return std::atomic_ref<uint32_t>(flag).load(std::memory_order_seq_cst);
}

}  // namespace

result<std::unique_ptr<cuda_link_kernels>> cuda_link_kernels::make(const link_cuda &cuda, const cuda_device &dev,
                                                                   begin_collectives collectives) {
    std::unique_ptr<cuda_link_kernels> made(new cuda_link_kernels(cuda, dev, std::move(collectives)));
    EBB_TRY(made->take());
    return made;
}

status cuda_link_kernels::take() {
    void *flags = nullptr;
    EBB_TRY(of_cuda(cuda_.host_alloc(&flags, sizeof(shared_flags), cudaHostAllocDefault), "cudaHostAlloc"));
    flags_ = static_cast<shared_flags *>(flags);
    *flags_ = {1, 0, 1, 0};
    for (cudaStream_t *stream : {&gate_stream_, &load_stream_}) {
        EBB_TRY(of_cuda(cuda_.stream_create_with_flags(stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"));
    }
    return of_cuda(cuda_.event_create_with_flags(&gate_passed_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

cuda_link_kernels::~cuda_link_kernels() {
    if (flags_ == nullptr) {
        return;
    }
    set(flags_->gate_open, 1);
    set(flags_->load_ends, 1);
    collectives_.reset();
    for (cudaStream_t stream : {gate_stream_, load_stream_}) {
        if (stream != nullptr) {
            static_cast<void>(cuda_.stream_synchronize(stream));
            static_cast<void>(cuda_.stream_destroy(stream));
        }
    }
    if (gate_passed_ != nullptr) {
        static_cast<void>(cuda_.event_destroy(gate_passed_));
    }
    static_cast<void>(cuda_.free_host(flags_));
}

status cuda_link_kernels::close_gate() {
    set(flags_->gate_open, 0);
    set(flags_->gate_gave_up, 0);
    EBB_TRY(of_cuda(cuda_.launch_gate(gate_stream_, &flags_->gate_open, &flags_->gate_gave_up), "the gate's launch"));
    return of_cuda(cuda_.event_record(gate_passed_, gate_stream_), "cudaEventRecord");
}

status cuda_link_kernels::hold(stream_id stream) {
    const result<cudaStream_t> native = dev_.native_stream(stream);
    EBB_TRY(native.why());
    return of_cuda(cuda_.stream_wait_event(native.value(), gate_passed_, 0), "cudaStreamWaitEvent");
}

status cuda_link_kernels::open_gate() {
    set(flags_->gate_open, 1);
    EBB_TRY(of_cuda(cuda_.stream_synchronize(gate_stream_), "cudaStreamSynchronize at the gate"));
    if (get(flags_->gate_gave_up) != 0) {
        return {code::wrong_state,
                "the gate opened by itself before everything was enqueued: a call waited for the device meanwhile"};
    }
    return {};
}

status cuda_link_kernels::fill(stream_id stream, void *data, uint64_t size_bytes, uint64_t seed) {
    const result<cudaStream_t> native = dev_.native_stream(stream);
    EBB_TRY(native.why());
    return of_cuda(cuda_.launch_fill(native.value(), data, size_bytes, seed), "a kernel's launch");
}

result<uint64_t> cuda_link_kernels::count_wrong(stream_id stream, const void *data, uint64_t size_bytes,
                                                uint64_t seed) {
    const result<cudaStream_t> native = dev_.native_stream(stream);
    EBB_TRY(native.why());
    set(flags_->wrong, 0);
    EBB_TRY(of_cuda(cuda_.launch_compare(native.value(), data, size_bytes, seed, &flags_->wrong), "a kernel's launch"));
    EBB_TRY(of_cuda(cuda_.stream_synchronize(native.value()), "cudaStreamSynchronize"));
    return uint64_t{get(flags_->wrong)};
}

status cuda_link_kernels::begin_load(load under) {
    if (under == load::compute) {
        set(flags_->load_ends, 0);
        return of_cuda(cuda_.launch_load(load_stream_, &flags_->load_ends), "the load's launch");
    }
    if (!begin_collectives_) {
        return {code::unsupported, "this build has no NCCL: none was found when it was configured"};
    }
    result<std::unique_ptr<running_collectives>> begun = begin_collectives_();
    EBB_TRY(begun.why());
    collectives_ = std::move(begun).value();
    return {};
}

status cuda_link_kernels::end_load() {
    set(flags_->load_ends, 1);
    collectives_.reset();
    return of_cuda(cuda_.stream_synchronize(load_stream_), "cudaStreamSynchronize behind the load");
}

}  // namespace ebb::link
