#include "link/call_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "capi/session.hpp"

namespace ebb::link {

namespace {

constexpr uint64_t k_most_activations = 64;
constexpr uint64_t k_least_activations = 8;
constexpr uint64_t k_enough_bytes = 1ULL << 30U;
constexpr uint64_t k_slots = 4;
constexpr uint64_t k_warm_steps = 4;
constexpr uint64_t k_counted_steps = 9;

uint64_t activations_of(uint64_t size_bytes) noexcept {
    return std::clamp(k_enough_bytes / size_bytes, k_least_activations, k_most_activations);
}

uint64_t staging_of(uint64_t size_bytes) noexcept {
    return k_slots * slot_pool::slot_bytes(size_bytes);
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// Of one step: time inside Ebb's calls, what of it went to CUDA, and how many calls to CUDA each offload made.
struct step_cost {
    double call_ns = 0;
    call_totals cuda;
    std::vector<double> offload_calls;
};

class cost_loop {
public:
    cost_loop(link_device on, uint64_t size_bytes, uint64_t chunk_bytes)
        : cuda_calls_(on.cuda_calls),
          count_(activations_of(size_bytes)),
          size_bytes_(size_bytes),
          chunk_bytes_(chunk_bytes == 0 ? on.dev->info().default_chunk_bytes : chunk_bytes),
          handles_(count_) {
        for (uint64_t i = 0; i < count_; ++i) {
            names_.push_back(fmt::format("activation{}", i));
        }
        kernels_ = std::move(on.kernels);
        dev_ = std::move(on.dev);
        host_ = on.host;
    }
    ~cost_loop();
    cost_loop(const cost_loop &) = delete;
    cost_loop &operator=(const cost_loop &) = delete;

    status open();
    result<call_cost> measure();

private:
    status offload(uint64_t i);
    status bring_back(uint64_t i);
    status run_step(step_cost &cost);
    result<step_cost> step();
    result<double> ns_of_one_memcpy();
    [[nodiscard]] call_totals totals() const { return cuda_calls_ ? cuda_calls_() : call_totals{}; }

    std::function<call_totals()> cuda_calls_;
    uint64_t count_;
    uint64_t size_bytes_;
    uint64_t chunk_bytes_;
    std::vector<ebb_activation> handles_;
    std::vector<std::string> names_;
    std::unique_ptr<link_kernels> kernels_;
    std::unique_ptr<device> dev_;  // until the runtime has it
    host_device *host_ = nullptr;
    device *device_ = nullptr;
    ebb_runtime *runtime_ = nullptr;
    char *sources_ = nullptr;
    char *pinned_ = nullptr;
    ebb_stream compute_ = 0;
};

status cost_loop::open() {
    device_ = dev_.get();
    runtime_options o;
    o.min_offload_bytes = 1;
    o.policy = "offload";
    o.max_activation_bytes = size_bytes_;
    o.staging_bytes = staging_of(size_bytes_);
    o.device_budget_bytes = o.staging_bytes + k_slots * size_bytes_;
    o.chunk_bytes = chunk_bytes_;
    o.sample_every = 1U << 30U;  // times are taken in few steps; those are not what is asked for
    const result<ebb_runtime *> made =
        capi::make_runtime(std::move(dev_), host_, o, logger(nullptr, nullptr, log_level::warning), nullptr);
    EBB_TRY(made.why());
    runtime_ = made.value();
    const result<void *> sources = device_->alloc_device(count_ * size_bytes_);
    EBB_TRY(sources.why());
    sources_ = static_cast<char *>(sources.value());
    const result<void *> pinned = device_->map_host(size_bytes_);
    EBB_TRY(pinned.why());
    pinned_ = static_cast<char *>(pinned.value());
    const result<stream_id> stream = device_->create_stream(stream_role::compute);
    EBB_TRY(stream.why());
    compute_ = static_cast<ebb_stream>(stream.value());
    return {};
}

cost_loop::~cost_loop() {
    kernels_.reset();
    if (runtime_ == nullptr) {
        return;
    }
    if (compute_ != 0) {
        static_cast<void>(device_->destroy_stream(stream_id{compute_}));
    }
    if (sources_ != nullptr) {
        static_cast<void>(device_->free_device(sources_, count_ * size_bytes_));
    }
    if (pinned_ != nullptr) {
        static_cast<void>(device_->unmap_host(pinned_, size_bytes_));
    }
    static_cast<void>(ebb_runtime_close(runtime_, EBB_CLOSE_FORCE));
}

status cost_loop::offload(uint64_t i) {
    ebb_offload_args args{};
    args.struct_size = sizeof args;
    args.name = names_[i].c_str();
    args.data = sources_ + i * size_bytes_;
    args.size_bytes = size_bytes_;
    args.producers = &compute_;
    args.producer_count = 1;
    ebb_offload_info info{};
    info.struct_size = sizeof info;
    EBB_TRY(of_ebb(ebb_offload(runtime_, &args, &info), "ebb_offload"));
    handles_[i] = info.activation;
    if (info.placement != EBB_PLACE_OFFLOAD) {
        return {code::internal, fmt::format("{} was not offloaded: reason {}", names_[i], info.reason)};
    }
    return {};
}

status cost_loop::bring_back(uint64_t i) {
    ebb_reload_info info{};
    info.struct_size = sizeof info;
    EBB_TRY(of_ebb(ebb_reload(runtime_, handles_[i], compute_, &info), "ebb_reload"));
    EBB_TRY(of_ebb(ebb_return(runtime_, info.claim, compute_), "ebb_return"));
    return of_ebb(ebb_release(runtime_, handles_[i]), "ebb_release");
}

status cost_loop::run_step(step_cost &cost) {
    EBB_TRY(of_ebb(ebb_step(runtime_, EBB_PHASE_TRAIN), "ebb_step"));
    for (uint64_t i = 0; i < count_; ++i) {
        const uint64_t before = totals().calls;
        EBB_TRY(offload(i));
        cost.offload_calls.push_back(static_cast<double>(totals().calls - before));
    }
    for (uint64_t i = count_; i-- > 0;) {
        EBB_TRY(bring_back(i));
    }
    return {};
}

result<step_cost> cost_loop::step() {
    step_cost cost;
    cost.offload_calls.reserve(count_);
    const call_totals before = totals();
    const auto start = std::chrono::steady_clock::now();
    EBB_TRY(run_step(cost));
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    const call_totals after = totals();
    cost.call_ns = spent.count();
    cost.cuda = {after.calls - before.calls, after.ns - before.ns, 0, 0};
    // The device catches up, so that the next step's calls do not stand in a full queue.
    const result<event_id> done = device_->create_event(event_kind::plain);
    EBB_TRY(done.why());
    EBB_TRY(device_->record_event(done.value(), stream_id{compute_}));
    EBB_TRY(device_->synchronize_event(done.value()));
    EBB_TRY(device_->destroy_event(done.value()));
    return cost;
}

result<double> cost_loop::ns_of_one_memcpy() {
    const call_totals before = totals();
    const result<event_id> done = device_->create_event(event_kind::plain);
    EBB_TRY(done.why());
    for (uint64_t i = 0; i < count_; ++i) {
        EBB_TRY(device_->copy(stream_id{compute_}, copy_direction::d2h, pinned_, sources_, size_bytes_));
        if (i % k_least_activations == 0) {
            EBB_TRY(device_->record_event(done.value(), stream_id{compute_}));
            EBB_TRY(device_->synchronize_event(done.value()));
        }
    }
    EBB_TRY(device_->record_event(done.value(), stream_id{compute_}));
    EBB_TRY(device_->synchronize_event(done.value()));
    EBB_TRY(device_->destroy_event(done.value()));
    const call_totals after = totals();
    return static_cast<double>(after.copy_ns - before.copy_ns) /
           static_cast<double>(after.copy_calls - before.copy_calls);
}

result<call_cost> cost_loop::measure() {
    std::vector<double> call_ns, own_ns, d2h_calls, h2d_calls;
    const auto per = static_cast<double>(count_);
    for (uint64_t i = 0; i < k_warm_steps + k_counted_steps; ++i) {
        const result<step_cost> cost = step();
        EBB_TRY(cost.why());
        if (i >= k_warm_steps) {
            call_ns.push_back(cost.value().call_ns / per);
            own_ns.push_back(call_ns.back() - static_cast<double>(cost.value().cuda.ns) / per);
            d2h_calls.push_back(median(cost.value().offload_calls));
            h2d_calls.push_back(static_cast<double>(cost.value().cuda.calls) / per - d2h_calls.back());
        }
    }
    call_cost made;
    made.size_bytes = size_bytes_;
    made.chunks = (size_bytes_ + chunk_bytes_ - 1) / chunk_bytes_;
    made.activations = count_;
    made.steps = k_counted_steps;
    made.call_ns = median(call_ns);
    if (cuda_calls_) {
        const result<double> memcpy_ns = ns_of_one_memcpy();
        EBB_TRY(memcpy_ns.why());
        made.cuda = call_cost::cuda_share{median(own_ns), median(d2h_calls), median(h2d_calls), memcpy_ns.value()};
    }
    return made;
}

}  // namespace

cell_memory memory_of_call_cost(uint64_t size_bytes) noexcept {
    const uint64_t sources_bytes = activations_of(size_bytes) * size_bytes;
    return {sources_bytes + 2 * staging_of(size_bytes), sources_bytes + size_bytes};
}

result<call_cost> measure_call_cost(link_device on, uint64_t size_bytes, uint64_t chunk_bytes) {
    cost_loop loop(std::move(on), size_bytes, chunk_bytes);
    EBB_TRY(loop.open());
    return loop.measure();
}

}  // namespace ebb::link
