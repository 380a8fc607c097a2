// hot_path: our own cost per activation, offload + reload + return + release, on a device that does nothing. One
// iteration is one activation; whole training steps are run, with the record followed and prefetches issued.
//   hot_path/ours/N    through the C ABI, N activations live at the end of forward
//   hot_path/plain/N   the baseline of plain_offloader.hpp, the same step and the same device

#include <benchmark/benchmark.h>

#include <array>
#include <cstdlib>
#include <iostream>
#include <memory>

#include "device/null/null_device.hpp"
#include "ebb/ebb.h"
#include "plain_offloader.hpp"
#include "step_workload.hpp"

namespace {

using namespace ebb;         // NOLINT(google-build-using-namespace)
using namespace ebb::bench;  // NOLINT(google-build-using-namespace)

constexpr ebb_stream k_compute = 77;
constexpr uint64_t k_warm_steps = 3;

void must(ebb_status status) {
    if (status != EBB_OK) {
        std::cerr << ebb_status_name(status) << ": " << ebb_last_error() << "\n";
        std::exit(1);
    }
}

void count_deleter(void *context) {
    ++*static_cast<uint64_t *>(context);
}

class ours {
public:
    explicit ours(uint64_t count) : step_(make_step(count)), handles_(count) {
        ebb_runtime_options o{};
        o.struct_size = sizeof(o);
        o.device = "null";
        o.max_activation_bytes = k_largest_bytes;
        o.staging_bytes = k_slots * (k_largest_bytes + 1024);
        o.device_budget_bytes = 2 * o.staging_bytes;
        o.min_offload_bytes = 1;
        o.policy = "offload";        // every activation is moved; a plan would keep what fits
        o.sample_every = 1U << 30U;  // timing is not part of the hot path
        must(ebb_runtime_create(&o, &runtime_));
        // What is the same for all is set once, as a training loop would.
        args_.struct_size = sizeof(args_);
        args_.producers = &k_compute;
        args_.producer_count = 1;
        args_.deleter = count_deleter;
        args_.deleter_context = &deleted_;
    }
    ~ours() { must(ebb_runtime_close(runtime_, EBB_CLOSE_DEFAULT)); }
    ours(const ours &) = delete;
    ours &operator=(const ours &) = delete;

    void run_step() {
        must(ebb_step(runtime_, EBB_PHASE_TRAIN));
        for (uint64_t i = 0; i < step_.size(); ++i) {
            handles_[i] = offload(step_[i]);
        }
        for (uint64_t i = step_.size(); i-- > 0;) {
            ebb_reload_info info{};
            info.struct_size = sizeof(info);
            must(ebb_reload(runtime_, handles_[i], k_compute, &info));
            must(ebb_return(runtime_, info.claim, k_compute));
            must(ebb_release(runtime_, handles_[i]));
        }
    }

private:
    ebb_activation offload(const saved_tensor &t) {
        args_.name = t.name.c_str();
        args_.data = t.data;
        args_.size_bytes = t.size_bytes;
        args_.micro_batch = t.micro_batch;
        ebb_offload_info info{};
        info.struct_size = sizeof(info);
        must(ebb_offload(runtime_, &args_, &info));
        return info.activation;
    }

    std::vector<saved_tensor> step_;
    std::vector<ebb_activation> handles_;
    ebb_runtime *runtime_ = nullptr;
    ebb_offload_args args_{};
    uint64_t deleted_ = 0;
};

class plain {
public:
    explicit plain(uint64_t count) : step_(make_step(count)), handles_(count) {
        uint64_t host_bytes = 0;
        for (const saved_tensor &t : step_) {
            host_bytes += t.size_bytes;
        }
        const uint64_t staging_bytes = k_slots * (k_largest_bytes + 1024);
        offloader_ = std::make_unique<plain_offloader>(device_, host_bytes, staging_bytes, 2 * staging_bytes);
    }

    void run_step() {
        constexpr std::array k_producers{stream_id{k_compute}};
        offloader_->begin_step();
        for (uint64_t i = 0; i < step_.size(); ++i) {
            const saved_tensor &t = step_[i];
            handles_[i] = offloader_->offload(t.name, t.micro_batch, 0, t.data, t.size_bytes, k_producers,
                                              k_producers[0], [this] { ++deleted_; });
        }
        for (uint64_t i = step_.size(); i-- > 0;) {
            const plain_offloader::reloaded r = offloader_->reload(handles_[i], stream_id{k_compute});
            benchmark::DoNotOptimize(r.data);
            offloader_->give_back(r.claim, stream_id{k_compute});
            offloader_->release(handles_[i]);
        }
    }

private:
    std::vector<saved_tensor> step_;
    std::vector<uint64_t> handles_;
    null_device device_;
    std::unique_ptr<plain_offloader> offloader_;
    uint64_t deleted_ = 0;
};

template <class Runner>
void hot_path(benchmark::State &state) {
    const auto count = static_cast<uint64_t>(state.range(0));
    Runner runner(count);
    for (uint64_t i = 0; i < k_warm_steps; ++i) {
        runner.run_step();
    }
    while (state.KeepRunningBatch(static_cast<benchmark::IterationCount>(count))) {
        runner.run_step();
    }
}

BENCHMARK(hot_path<ours>)->Name("hot_path/ours")->Arg(100)->Arg(100000);
BENCHMARK(hot_path<plain>)->Name("hot_path/plain")->Arg(100)->Arg(100000);

}  // namespace
