// sim_ops: how many device operations per second the simulated device carries with the real core on top. One iteration
// is a training step of 126 layers: kernels, saved tensors that go out and come back, on a machine with GB200's
// measured rates, link latency, contention and two GPUs per host memory. Counted is what sim_device was asked to
// enqueue (copies, kernels, records, waits), by processor time.
//   sim_ops/ours

#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "capi/session.hpp"
#include "device/sim/sim_device.hpp"
#include "device/sim/sim_settings.hpp"
#include "ebb/ebb.h"

namespace {

using namespace ebb;  // NOLINT(google-build-using-namespace)

constexpr uint64_t k_mib = 1ULL << 20U;
constexpr uint64_t k_gib = 1ULL << 30U;
constexpr uint64_t k_layers = 126;
constexpr uint64_t k_warm_steps = 3;

// Saved per layer, in MiB: those of a dense transformer with 8192 tokens and 16384 features in bf16, per GPU of two.
constexpr std::array<uint64_t, 6> k_saved_mib{128, 160, 128, 208, 208, 128};
constexpr std::array<const char *, 6> k_names{
    "decoder_layer_input", "qkv_proj", "context", "mlp_gate", "mlp_up", "out_proj"};

void must(ebb_status status) {
    if (status != EBB_OK) {
        std::cerr << ebb_status_name(status) << ": " << ebb_last_error() << "\n";
        std::exit(1);
    }
}

void must(const status &done) {
    if (!done.ok()) {
        std::cerr << done.text() << "\n";
        std::exit(1);
    }
}

class training {
public:
    training() {
        auto made_device = std::make_unique<sim_device>(default_sim_machine());
        device_ = made_device.get();
        result<stream_id> stream = device_->create_stream(stream_role::compute);
        must(stream.why());
        compute_ = static_cast<ebb_stream>(stream.value());
        result<void *> memory = device_->alloc_device(k_layers * 1024 * k_mib);
        must(memory.why());
        memory_ = static_cast<std::byte *>(memory.value());
        runtime_options core;
        core.max_activation_bytes = 208 * k_mib;
        core.staging_bytes = 4 * k_gib;
        core.device_budget_bytes = 12 * k_gib;
        const logger quiet([](void *, int32_t, const char *) {}, nullptr, log_level::error);
        result<ebb_runtime *> made = capi::make_runtime(std::move(made_device), nullptr, core, quiet, nullptr);
        must(made.why());
        runtime_ = made.value();
        for (uint64_t layer = 0; layer < k_layers; ++layer) {
            scopes_.push_back("layer" + std::to_string(layer));
        }
    }
    ~training() { must(ebb_runtime_close(runtime_, EBB_CLOSE_DEFAULT)); }
    training(const training &) = delete;
    training &operator=(const training &) = delete;

    void run_step() {
        must(ebb_step(runtime_, EBB_PHASE_TRAIN));
        for (uint64_t layer = 0; layer < k_layers; ++layer) {
            must(ebb_scope_push(runtime_, scopes_[layer].c_str()));
            for (uint64_t i = 0; i < k_names.size(); ++i) {
                compute(200, 0.9);  // a norm, then a projection
                compute(800, 0.3);
                live_[layer][i] = save(layer, i);
            }
            must(ebb_scope_pop(runtime_));
        }
        for (uint64_t layer = k_layers; layer-- > 0;) {
            for (uint64_t i = k_names.size(); i-- > 0;) {
                ebb_reload_info info{};
                info.struct_size = sizeof(info);
                must(ebb_reload(runtime_, live_[layer][i], compute_, &info));
                compute(200, 0.9);
                compute(800, 0.3);
                compute(800, 0.3);
                must(ebb_return(runtime_, info.claim, compute_));
                must(ebb_release(runtime_, live_[layer][i]));
            }
        }
        device_->synchronize();
    }

    [[nodiscard]] uint64_t operations() const { return device_->operation_count(); }
    [[nodiscard]] double virtual_seconds() const { return static_cast<double>(device_->host_time_ps()) / 1e12; }

private:
    void compute(uint64_t microseconds, double hbm_fraction) {
        must(device_->launch(stream_id{compute_}, {sim_engine::compute, microseconds * 1'000'000, hbm_fraction}));
    }

    ebb_activation save(uint64_t layer, uint64_t i) {
        ebb_offload_args args{};
        args.struct_size = sizeof(args);
        args.name = k_names[i];
        args.data = memory_ + (layer * 1024 + i * 160) * k_mib;
        args.size_bytes = k_saved_mib[i] * k_mib;
        args.producers = &compute_;
        args.producer_count = 1;
        args.deleter = [](void *count) { ++*static_cast<uint64_t *>(count); };
        args.deleter_context = &given_up_;
        ebb_offload_info info{};
        info.struct_size = sizeof(info);
        must(ebb_offload(runtime_, &args, &info));
        return info.activation;
    }

    sim_device *device_ = nullptr;
    ebb_runtime *runtime_ = nullptr;
    ebb_stream compute_ = 0;
    std::byte *memory_ = nullptr;
    std::vector<std::string> scopes_;
    std::array<std::array<ebb_activation, k_names.size()>, k_layers> live_{};
    uint64_t given_up_ = 0;
};

void sim_ops(benchmark::State &state) {
    training run;
    for (uint64_t i = 0; i < k_warm_steps; ++i) {
        run.run_step();
    }
    const uint64_t before = run.operations();
    const double began_seconds = run.virtual_seconds();
    for (auto _ : state) {
        run.run_step();
    }
    const auto steps = static_cast<double>(state.iterations());
    state.SetItemsProcessed(static_cast<int64_t>(run.operations() - before));
    state.counters["operations_per_step"] = static_cast<double>(run.operations() - before) / steps;
    state.counters["virtual_seconds_per_step"] = (run.virtual_seconds() - began_seconds) / steps;
}

BENCHMARK(sim_ops)->Name("sim_ops/ours")->Unit(benchmark::kMillisecond);

}  // namespace
