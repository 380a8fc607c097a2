// A training loop on the CUDA backend over the double, as a program with CUDA streams and memory of its own writes it:
// it saves activations, reads them back in reverse and compares them on its stream. After each call of Ebb it looks
// whether the thread's CUDA state is as it was.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "capi/session.hpp"
#include "cuda_double/checked_cuda.hpp"
#include "device/cuda/cuda_device.hpp"
#include "ebb/ebb.h"

namespace ebb::test {

class cuda_loop {
public:
    struct saved {
        ebb_activation activation = 0;
        uint64_t seed = 0;
        uint64_t size_bytes = 0;
    };

    // On `ordinal`, which is the calling thread's device from here on, unless it says otherwise.
    cuda_loop(checked_cuda &cuda, const runtime_options &core, int ordinal = 0, const cuda_device_options &options = {})
        : cuda_(cuda), ordinal_(ordinal) {
        ok(user().set_device(ordinal));
        result<std::unique_ptr<cuda_device>> made = cuda_device::make(cuda.api(), ordinal, options);
        EXPECT_TRUE(made.ok()) << made.why().text();
        device_ = made.value().get();
        result<ebb_runtime *> runtime = capi::make_runtime(std::move(made).value(), nullptr, core,
                                                           logger(note_line, this, log_level::warning), nullptr);
        EXPECT_TRUE(runtime.ok()) << runtime.why().text();
        runtime_ = runtime.ok() ? runtime.value() : nullptr;
        ok(user().stream_create_with_flags(&stream_, cudaStreamNonBlocking));
        void *wrong = nullptr;
        ok(user().host_alloc(&wrong, sizeof(uint64_t), cudaHostAllocDefault));
        wrong_ = static_cast<uint32_t *>(wrong);
        *wrong_ = 0;
    }
    ~cuda_loop() { close(); }
    cuda_loop(const cuda_loop &) = delete;
    cuda_loop &operator=(const cuda_loop &) = delete;

    void close() {
        if (wrong_ == nullptr) {
            return;
        }
        ok(user().stream_synchronize(stream_));
        EXPECT_EQ(*wrong_, 0U) << "words came back wrong";
        if (runtime_ != nullptr) {
            call([&] { return ebb_runtime_close(std::exchange(runtime_, nullptr), EBB_CLOSE_FORCE); });
        }
        ok(user().device_synchronize());
        for (const source &each : sources_) {
            EXPECT_EQ(each.deleted, 1) << "a deleter runs exactly once";
            ok(user().free(each.data));
        }
        ok(user().free_host(std::exchange(wrong_, nullptr)));
        ok(user().stream_destroy(stream_));
    }

    [[nodiscard]] ebb_runtime *runtime() { return runtime_; }
    // Whoever takes it closes it.
    [[nodiscard]] ebb_runtime *leave_runtime() { return std::exchange(runtime_, nullptr); }
    [[nodiscard]] cuda_device &device() { return *device_; }
    [[nodiscard]] checked_cuda &cuda() { return cuda_; }
    [[nodiscard]] static const cuda_user &user() { return cuda_double::user(); }
    [[nodiscard]] ebb_stream stream() const { return reinterpret_cast<ebb_stream>(stream_); }
    [[nodiscard]] cudaStream_t native() const { return stream_; }
    [[nodiscard]] const std::vector<std::string> &log() const { return log_; }
    // The device that the calling thread has while it calls Ebb.
    void call_from_device(int ordinal) { ordinal_of_calls_ = ordinal; }

    static void ok(cudaError_t error) { EXPECT_EQ(error, cudaSuccess); }
    // A call of Ebb: what CUDA knows of the thread is the same afterwards.
    template <class Call>
    void call(const Call &make) {
        const int of_calls = ordinal_of_calls_ < 0 ? ordinal_ : ordinal_of_calls_;
        ok(user().set_device(of_calls));
        const ebb_status status = make();
        EXPECT_EQ(status, EBB_OK) << ebb_status_name(status) << ": " << ebb_last_error();
        int ordinal = -1;
        ok(user().get_device(&ordinal));
        EXPECT_EQ(ordinal, of_calls);
        EXPECT_EQ(user().peek_at_last_error(), cudaSuccess);
        cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
        ok(user().thread_exchange_stream_capture_mode(&mode));
        EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
        ok(user().set_device(ordinal_));
    }

    void step(ebb_phase phase = EBB_PHASE_TRAIN) {
        call([&] { return ebb_step(runtime_, phase); });
    }
    saved forward(const std::string &name, uint64_t size_bytes) {
        source *from = take_source(size_bytes);
        const saved made{0, ++seed_, size_bytes};
        ok(user().launch_fill(stream_, from->data, size_bytes, made.seed));
        const ebb_stream producer = stream();
        ebb_offload_args args{};
        args.struct_size = sizeof args;
        args.name = name.c_str();
        args.data = from->data;
        args.size_bytes = size_bytes;
        args.producers = &producer;
        args.producer_count = 1;
        args.deleter = [](void *context) { ++static_cast<source *>(context)->deleted; };
        args.deleter_context = from;
        info_ = {};
        info_.struct_size = sizeof info_;
        call([&] { return ebb_offload(runtime_, &args, &info_); });
        return {info_.activation, made.seed, size_bytes};
    }
    void backward(const saved &s) {
        ebb_reload_info back{};
        back.struct_size = sizeof back;
        call([&] { return ebb_reload(runtime_, s.activation, stream(), &back); });
        ok(user().launch_compare(stream_, back.data, s.size_bytes, s.seed, wrong_));
        call([&] { return ebb_return(runtime_, back.claim, stream()); });
        call([&] { return ebb_release(runtime_, s.activation); });
    }
    // One step of `layers` activations of that size.
    void train(int layers, uint64_t size_bytes) {
        step();
        std::vector<saved> live;
        for (int l = 0; l < layers; ++l) {
            live.push_back(forward("layer." + std::to_string(l), size_bytes));
        }
        while (!live.empty()) {
            backward(live.back());
            live.pop_back();
        }
    }
    [[nodiscard]] const ebb_offload_info &info() const { return info_; }
    [[nodiscard]] ebb_statistics stats() {
        ebb_statistics s{};
        s.struct_size = sizeof s;
        call([&] { return ebb_stats(runtime_, &s); });
        return s;
    }

private:
    struct source {
        void *data = nullptr;
        uint64_t size_bytes = 0;
        int deleted = 1;
    };
    // Memory that was given back serves again, behind its last use on the loop's stream.
    source *take_source(uint64_t size_bytes) {
        for (source &each : sources_) {
            if (each.deleted == 1 && each.size_bytes == size_bytes) {
                each.deleted = 0;
                return &each;
            }
        }
        source &made = sources_.emplace_back();
        ok(user().malloc(&made.data, size_bytes));
        made.size_bytes = size_bytes;
        made.deleted = 0;
        return &made;
    }
    static void note_line(void *self, int32_t, const char *line) {
        static_cast<cuda_loop *>(self)->log_.emplace_back(line);
    }

    checked_cuda &cuda_;
    int ordinal_;
    int ordinal_of_calls_ = -1;
    cuda_device *device_ = nullptr;
    ebb_runtime *runtime_ = nullptr;
    cudaStream_t stream_ = nullptr;
    uint32_t *wrong_ = nullptr;
    std::deque<source> sources_;
    uint64_t seed_ = 0;
    ebb_offload_info info_{};
    std::vector<std::string> log_;
};

constexpr uint64_t k_loop_bytes = 64 * 1024;

// Every source is given up in the call that offloads it, and reloaded ahead.
inline runtime_options loop_options(uint64_t size_bytes = k_loop_bytes, uint64_t chunk_bytes = 0) {
    runtime_options o;
    o.policy = "offload";
    o.min_offload_bytes = 1;
    o.source_bytes = k_none_bytes;
    o.max_activation_bytes = size_bytes;
    o.staging_bytes = 4 * (size_bytes + 512);
    o.device_budget_bytes = o.staging_bytes + 4 * size_bytes;
    o.chunk_bytes = chunk_bytes;
    return o;
}

}  // namespace ebb::test
