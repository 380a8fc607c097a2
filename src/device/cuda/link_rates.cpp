#include "device/cuda/link_rates.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device/cuda/cuda_context.hpp"
#include "device/cuda/pinned_slabs.hpp"

namespace ebb {
namespace {

constexpr uint64_t k_mib = 1ULL << 20U;
constexpr uint32_t k_copies_per_buffer = 4;
constexpr uint32_t k_measured_copies = 8;
// A direction that is measured beside the other must not be left alone at its end, however unequal the two are.
constexpr uint32_t k_opposing_copies = 3 * k_measured_copies;

std::string measuring() {
    return "measuring the link";
}

// One direction on one GPU: a stream, memory on both sides and the times of what is measured.
struct probe_side {
    cudaMemcpyKind kind = cudaMemcpyDeviceToHost;
    cudaStream_t stream = nullptr;
    cudaEvent_t start = nullptr;
    cudaEvent_t end = nullptr;
    void *device = nullptr;
    void *host = nullptr;
};

class link_probe {
public:
    link_probe(const cuda_api &api, int32_t ordinal, const measuring_options &options)
        : context_(api, ordinal),
          slabs_(context_, options.system_root, options.prefault_threads),
          copy_bytes_(options.buffer_bytes / k_copies_per_buffer) {}
    ~link_probe() { give_back(); }
    link_probe(const link_probe &) = delete;
    link_probe &operator=(const link_probe &) = delete;

    status open();
    // The first copy is to get going, and is not measured.
    status enqueue(copy_direction direction, uint32_t number, bool is_measured);
    status finish();
    result<uint64_t> rate(copy_direction direction);

    [[nodiscard]] int32_t ordinal() const noexcept { return context_.ordinal; }

private:
    status open(probe_side &side, cudaMemcpyKind kind);
    void give_back();
    probe_side &side(copy_direction direction) { return sides_[direction == copy_direction::d2h ? 0 : 1]; }

    cuda_context context_;
    pinned_slabs slabs_;
    const uint64_t copy_bytes_;
    std::array<probe_side, 2> sides_;
};

status link_probe::open() {
    EBB_TRY(slabs_.open());
    EBB_TRY(open(sides_[0], cudaMemcpyDeviceToHost));
    return open(sides_[1], cudaMemcpyHostToDevice);
}

status link_probe::open(probe_side &side, cudaMemcpyKind kind) {
    side.kind = kind;
    result<void *> host = slabs_.map(k_copies_per_buffer * copy_bytes_);
    if (!host.ok()) {
        return host.why();
    }
    side.host = host.value();
    const cuda_api &api = context_.api;
    const allocation_scope scope(context_);
    EBB_TRY(scope.why());
    EBB_TRY(
        context_.errors.check(api.malloc(&side.device, k_copies_per_buffer * copy_bytes_), "cudaMalloc", measuring));
    EBB_TRY(context_.errors.check(api.stream_create_with_flags(&side.stream, cudaStreamNonBlocking),
                                  "cudaStreamCreateWithFlags", measuring));
    EBB_TRY(context_.errors.check(api.event_create_with_flags(&side.start, cudaEventDefault),
                                  "cudaEventCreateWithFlags", measuring));
    return context_.errors.check(api.event_create_with_flags(&side.end, cudaEventDefault), "cudaEventCreateWithFlags",
                                 measuring);
}

status link_probe::enqueue(copy_direction direction, uint32_t number, bool is_measured) {
    probe_side &at = side(direction);
    const uint64_t offset = number % k_copies_per_buffer * copy_bytes_;
    void *device = static_cast<char *>(at.device) + offset;
    void *host = static_cast<char *>(at.host) + offset;
    const bool out = at.kind == cudaMemcpyDeviceToHost;
    EBB_TRY(context_.errors.check(
        context_.api.memcpy_async(out ? host : device, out ? device : host, copy_bytes_, at.kind, at.stream),
        "cudaMemcpyAsync", measuring));
    if (is_measured && number == 0) {
        EBB_TRY(context_.errors.check(context_.api.event_record(at.start, at.stream), "cudaEventRecord", measuring));
    }
    if (is_measured && number == k_measured_copies) {
        EBB_TRY(context_.errors.check(context_.api.event_record(at.end, at.stream), "cudaEventRecord", measuring));
    }
    return {};
}

// Waits for all that is enqueued.
status link_probe::finish() {
    const allocation_scope scope(context_);
    EBB_TRY(scope.why());
    for (const probe_side &at : sides_) {
        cudaEvent_t last = nullptr;
        EBB_TRY(context_.errors.check(context_.api.event_create_with_flags(&last, cudaEventDisableTiming),
                                      "cudaEventCreateWithFlags", measuring));
        status waited = context_.errors.check(context_.api.event_record(last, at.stream), "cudaEventRecord", measuring);
        if (waited.ok()) {
            waited = context_.errors.check(context_.api.event_synchronize(last), "cudaEventSynchronize", measuring);
        }
        context_.errors.ignore(context_.api.event_destroy(last));
        EBB_TRY(waited);
    }
    return {};
}

result<uint64_t> link_probe::rate(copy_direction direction) {
    const probe_side &at = side(direction);
    float milliseconds = 0;
    const relaxed_capture_scope relaxed(context_);
    EBB_TRY(context_.errors.check(context_.api.event_elapsed_time(&milliseconds, at.start, at.end),
                                  "cudaEventElapsedTime", measuring));
    constexpr double k_ms_per_second = 1000;
    if (milliseconds <= 0) {
        return uint64_t{0};
    }
    const auto bytes = static_cast<double>(k_measured_copies * copy_bytes_);
    return static_cast<uint64_t>(bytes * k_ms_per_second / static_cast<double>(milliseconds));
}

void link_probe::give_back() {
    if (!context_.errors.usable()) {
        return;
    }
    const allocation_scope scope(context_);
    for (const probe_side &at : sides_) {
        for (cudaEvent_t event : {at.start, at.end}) {
            if (event != nullptr) {
                context_.errors.ignore(context_.api.event_destroy(event));
            }
        }
        if (at.stream != nullptr) {
            context_.errors.ignore(context_.api.stream_destroy(at.stream));
        }
        if (at.device != nullptr) {
            context_.errors.ignore(context_.api.free(at.device));  // waits for copies in flight
        }
    }
    slabs_.give_back_all();
}

using probes = std::vector<std::unique_ptr<link_probe>>;

// All GPUs at once; the measured direction alone, or beside the other one, which lasts longer than it.
status run(const probes &all, copy_direction measured, bool beside) {
    const copy_direction other = measured == copy_direction::d2h ? copy_direction::h2d : copy_direction::d2h;
    status enqueued;
    for (uint32_t number = 0; number <= k_opposing_copies; ++number) {
        for (const auto &each : all) {
            if (enqueued.ok() && beside) {
                enqueued = each->enqueue(other, number, false);
            }
            if (enqueued.ok() && number <= k_measured_copies) {
                enqueued = each->enqueue(measured, number, true);
            }
        }
    }
    for (const auto &each : all) {
        status finished = each->finish();
        if (enqueued.ok()) {
            enqueued = std::move(finished);
        }
    }
    return enqueued;
}

using rates_by_device = std::map<std::pair<const cuda_api *, int32_t>, link_rates>;

status measure(const probes &all, const cuda_api &api, rates_by_device &rates) {
    const auto take = [&](copy_direction direction, uint64_t link_rates::*field) -> status {
        for (const auto &each : all) {
            const result<uint64_t> rate = each->rate(direction);
            if (!rate.ok()) {
                return rate.why();
            }
            rates[{&api, each->ordinal()}].*field = rate.value();
        }
        return {};
    };
    EBB_TRY(run(all, copy_direction::d2h, false));
    EBB_TRY(take(copy_direction::d2h, &link_rates::d2h_bytes_per_second));
    EBB_TRY(run(all, copy_direction::h2d, false));
    EBB_TRY(take(copy_direction::h2d, &link_rates::h2d_bytes_per_second));
    EBB_TRY(run(all, copy_direction::d2h, true));
    EBB_TRY(take(copy_direction::d2h, &link_rates::d2h_beside_h2d_bytes_per_second));
    EBB_TRY(run(all, copy_direction::h2d, true));
    return take(copy_direction::h2d, &link_rates::h2d_beside_d2h_bytes_per_second);
}

// A GPU that has no room to be measured is left out, unless it is the one that is asked about.
result<probes> open_probes(const cuda_api &api, int32_t ordinal, const measuring_options &options) {
    int count = 0;
    if (api.get_device_count(&count) != cudaSuccess) {
        count = ordinal + 1;
    }
    probes all;
    for (int32_t each = 0; each < count; ++each) {
        int in_use = 0;
        if (each != ordinal && (api.device_in_use(each, &in_use) != cudaSuccess || in_use == 0)) {
            continue;
        }
        auto probe = std::make_unique<link_probe>(api, each, options);
        status opened = probe->open();
        if (opened.ok()) {
            all.push_back(std::move(probe));
        } else if (each == ordinal) {
            return opened;
        }
    }
    return all;
}

std::mutex &measuring_mutex() {
    static std::mutex mutex;
    return mutex;
}

rates_by_device &measured_rates() {
    static rates_by_device rates;
    return rates;
}

}  // namespace

uint64_t chunk_bytes_at(uint64_t bytes_per_second) noexcept {
    constexpr uint64_t k_chunks_per_second = 2000;
    const uint64_t bytes = bytes_per_second / k_chunks_per_second / k_mib * k_mib;
    return std::clamp(bytes, 4 * k_mib, 64 * k_mib);
}

// Measured by others on machines of these kinds: nvbandwidth on A100 (PCIe 4), Azure on H100 and H200 (PCIe 5) and on
// GB200, KTH on GH200.
uint64_t usual_bytes_per_second(bool coherent, int compute_capability_major) noexcept {
    constexpr int k_hopper = 9;
    constexpr uint64_t k_giga = 1'000'000'000;
    if (coherent) {
        return (compute_capability_major <= k_hopper ? 297 : 193) * k_giga;
    }
    return (compute_capability_major < k_hopper ? 25 : 52) * k_giga;
}

result<link_rates> measured_link_rates(const cuda_api &api, int32_t ordinal, const measuring_options &options) {
    const std::lock_guard lock(measuring_mutex());
    rates_by_device &known = measured_rates();
    if (const auto found = known.find({&api, ordinal}); found != known.end()) {
        return found->second;
    }
    const result<probes> all = open_probes(api, ordinal, options);
    if (!all.ok()) {
        return all.why();
    }
    rates_by_device rates;
    EBB_TRY(measure(all.value(), api, rates));
    for (const auto &[device, measured] : rates) {
        known[device] = measured;
    }
    return known[{&api, ordinal}];
}

void forget_measured_link_rates() {
    const std::lock_guard lock(measuring_mutex());
    measured_rates().clear();
}

}  // namespace ebb
