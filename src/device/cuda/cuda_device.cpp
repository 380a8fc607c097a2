#include "device/cuda/cuda_device.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "device/copy_arguments.hpp"
#include "device/cuda/process_exit.hpp"

namespace ebb {
namespace {

const char *direction_name(copy_direction direction) noexcept {
    switch (direction) {
        case copy_direction::d2h:
            return "from the device";
        case copy_direction::h2d:
            return "to the device";
        case copy_direction::d2d:
            return "on the device";
    }
    return "";
}

cudaMemcpyKind kind_of(copy_direction direction) noexcept {
    switch (direction) {
        case copy_direction::d2h:
            return cudaMemcpyDeviceToHost;
        case copy_direction::h2d:
            return cudaMemcpyHostToDevice;
        case copy_direction::d2d:
            break;
    }
    return cudaMemcpyDeviceToDevice;
}

uint64_t number_of(stream_id stream) noexcept {
    return static_cast<uint64_t>(stream);
}

uint64_t number_of(event_id event) noexcept {
    return static_cast<uint64_t>(event);
}

}  // namespace

// ---------------------------------------------------------------------------------------- begin and end --

cuda_device::cuda_device(const cuda_api &api, int32_t ordinal, const cuda_device_options &options)
    : options_(options),
      context_(api, ordinal),
      ranges_(options.nvtx),
      slabs_(context_, options.system_root, options.prefault_threads) {}

result<std::unique_ptr<cuda_device>> cuda_device::make(const cuda_api &api, int32_t ordinal,
                                                       const cuda_device_options &options) {
    std::unique_ptr<cuda_device> made(new cuda_device(api, ordinal, options));
    EBB_TRY(made->open());
    return made;
}

status cuda_device::open() {
    if (process_exit_began()) {
        return errors_.refusal();
    }
    int count = 0;
    EBB_TRY(errors_.check(api_.get_device_count(&count), "cudaGetDeviceCount",
                          [] { return std::string("looking for CUDA devices"); }));
    watch_process_exit();
    if (context_.ordinal < 0 || context_.ordinal >= count) {
        return {code::invalid_argument,
                fmt::format("device_ordinal {}: this process sees {} CUDA devices, numbered from 0 "
                            "(CUDA_VISIBLE_DEVICES says which)",
                            context_.ordinal, count)};
    }
    EBB_TRY(find_out());
    const allocation_scope scope(context_);
    EBB_TRY(scope.why());
    return scratch_.take();
}

result<int> cuda_device::attribute(cudaDeviceAttr which) {
    int value = 0;
    EBB_TRY(errors_.check(api_.device_get_attribute(&value, which, context_.ordinal), "cudaDeviceGetAttribute",
                          [&] { return fmt::format("asking for attribute {}", static_cast<int>(which)); }));
    return value;
}

status cuda_device::find_out() {
    info_.name = "cuda";
    info_.type = memory_type::cuda;
    info_.ordinal = context_.ordinal;
    info_.captures = true;
    char model[256] = "";
    EBB_TRY(errors_.check(api_.device_get_name(model, sizeof model, context_.ordinal), "cudaGetDeviceProperties",
                          [] { return std::string("asking for the device's name"); }));
    model_ = model;
    const result<int> integrated = attribute(cudaDevAttrIntegrated);
    const result<int> major = attribute(cudaDevAttrComputeCapabilityMajor);
    EBB_TRY(integrated.why());
    EBB_TRY(major.why());
    info_.integrated = integrated.value() != 0;
    EBB_TRY(slabs_.open());
    if (std::string note = slabs_.note(); !note.empty()) {
        notes_.push_back(std::move(note));
    }
    choose_chunk_size(major.value());
    return errors_.usable() ? status{} : errors_.refusal();
}

void cuda_device::choose_chunk_size(int compute_capability_major) {
    uint64_t rate = usual_bytes_per_second(slabs_.statistics().allocated_by_cuda, compute_capability_major);
    if (options_.calibrate) {
        const result<link_rates> measured = measured_link_rates(
            api_, context_.ordinal, {options_.system_root, options_.prefault_threads, options_.calibration_bytes});
        if (measured.ok()) {
            info_.measured_link = measured.value();
            rate = std::min(measured.value().d2h_bytes_per_second, measured.value().h2d_bytes_per_second);
        } else {
            notes_.push_back(fmt::format("the link of CUDA device {} was not measured, and usual rates are taken: {}",
                                         context_.ordinal, measured.why().text()));
        }
    }
    info_.default_chunk_bytes = chunk_bytes_at(rate);
}

cuda_device::~cuda_device() {
    if (errors_.usable()) {
        const allocation_scope scope(context_);  // and if that fails, all the same
        give_back_all();
    }
}

// CUDA may wait for work on memory that is freed, or not. The work that we gave to our streams is over when this
// returns; streams in a capture have none.
status cuda_device::wait_for(const std::vector<cudaStream_t> &streams) {
    const auto what = [] { return std::string("waiting for our streams before something is given back"); };
    cudaEvent_t passed = nullptr;
    EBB_TRY(
        errors_.check(api_.event_create_with_flags(&passed, cudaEventDisableTiming), "cudaEventCreateWithFlags", what));
    status waited;
    for (cudaStream_t stream : streams) {
        cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
        unsigned long long id = 0;
        waited = errors_.check(api_.stream_get_capture_info(stream, &state, &id), "cudaStreamGetCaptureInfo", what);
        if (waited.ok() && state == cudaStreamCaptureStatusNone) {
            waited = errors_.check(api_.event_record(passed, stream), "cudaEventRecord", what);
            if (waited.ok()) {
                waited = errors_.check(api_.event_synchronize(passed), "cudaEventSynchronize", what);
            }
        }
        if (!waited.ok()) {
            break;
        }
    }
    if (errors_.usable()) {
        errors_.ignore(api_.event_destroy(passed));
    }
    return waited;
}

status cuda_device::wait_for_our_streams() {
    if (!errors_.usable()) {
        return {};
    }
    const allocation_scope scope(context_);
    EBB_TRY(scope.why());
    const std::lock_guard lock(ending_mutex_);
    status waited = wait_for(streams_.all());
    return errors_.usable() ? waited : status();
}

void cuda_device::give_back_all() {
    static_cast<void>(wait_for(streams_.all()));
    for (cudaStream_t stream : streams_.remove_all()) {
        errors_.ignore(api_.stream_destroy(stream));
    }
    for (cudaEvent_t event : events_.remove_all()) {
        errors_.ignore(api_.event_destroy(event));
    }
    scratch_.give_back();
    blocks_.give_back_all();
    slabs_.give_back_all();
}

cuda_device_statistics cuda_device::statistics() const {
    cuda_device_statistics all;
    all.model = model_;
    all.pinned = slabs_.statistics();
    all.coherent = all.pinned.allocated_by_cuda;
    all.integrated = info_.integrated;
    all.copies_in_batches = api_.memcpy_batch_async != nullptr;
    return all;
}

// ------------------------------------------------------------------------------------------------- memory --

result<void *> cuda_device::alloc_device(uint64_t size_bytes) {
    return blocks_.allocate(size_bytes);
}

status cuda_device::free_device(void *data, uint64_t size_bytes) {
    EBB_TRY(wait_for_our_streams());
    return blocks_.free(data, size_bytes);
}

device_memory cuda_device::memory() const {
    return blocks_.memory();
}

result<void *> cuda_device::map_host(uint64_t size_bytes) {
    return slabs_.map(size_bytes);
}

status cuda_device::unmap_host(void *data, uint64_t size_bytes) {
    EBB_TRY(wait_for_our_streams());
    return slabs_.unmap(data, size_bytes);
}

uint64_t cuda_device::host_room_bytes() const {
    return slabs_.room_bytes();
}

// ------------------------------------------------------------------------------------------------ streams --

template <class Call>
status cuda_device::on_stream(stream_id stream, const Call &call) {
    if (!errors_.usable()) {
        return errors_.refusal();
    }
    cudaStream_t handle = nullptr;
    if (!streams_.find(stream, handle)) {
        return cuda_streams::refusal(stream);
    }
    if (cuda_streams::is_current_devices(stream)) {
        const current_device_scope current(context_);
        EBB_TRY(current.why());
        return call(handle);
    }
    const any_context_scope any(context_);
    EBB_TRY(any.why());
    return call(handle);
}

result<stream_id> cuda_device::create_stream(stream_role /*role*/) {
    if (!errors_.usable()) {
        return errors_.refusal();
    }
    const allocation_scope scope(context_);
    EBB_TRY(scope.why());
    cudaStream_t handle = nullptr;
    EBB_TRY(errors_.check(api_.stream_create_with_flags(&handle, cudaStreamNonBlocking), "cudaStreamCreateWithFlags",
                          [] { return std::string("creating a stream"); }));
    result<stream_id> added = streams_.add(handle);
    if (!added.ok()) {
        errors_.ignore(api_.stream_destroy(handle));
    }
    return added;
}

status cuda_device::destroy_stream(stream_id stream) {
    const std::lock_guard lock(ending_mutex_);
    std::optional<allocation_scope> scope;
    if (errors_.usable()) {
        scope.emplace(context_);
        EBB_TRY(scope->why());  // while it is a stream still
    }
    const result<cudaStream_t> removed = streams_.remove(stream);
    if (!removed.ok()) {
        return removed.why();
    }
    if (!scope) {
        return {};
    }
    status waited = wait_for({removed.value()});
    status destroyed = errors_.check(api_.stream_destroy(removed.value()), "cudaStreamDestroy",
                                     [&] { return fmt::format("destroying stream {}", number_of(stream)); });
    return waited.ok() ? destroyed : waited;
}

status cuda_device::check_stream(stream_id stream) const {
    cudaStream_t handle = nullptr;
    return streams_.find(stream, handle) ? status{} : cuda_streams::refusal(stream);
}

result<cudaStream_t> cuda_device::native_stream(stream_id stream) const {
    cudaStream_t handle = nullptr;
    return streams_.find(stream, handle) ? result<cudaStream_t>(handle) : cuda_streams::refusal(stream);
}

result<capture_id> cuda_device::capture_of(stream_id stream) {
    cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    EBB_TRY(on_stream(stream, [&](cudaStream_t handle) {
        return errors_.check(api_.stream_get_capture_info(handle, &state, &id), "cudaStreamGetCaptureInfo", [&] {
            return fmt::format("asking whether stream {} is in a capture", number_of(stream));
        });
    }));
    switch (state) {
        case cudaStreamCaptureStatusActive:
            return capture_id{id};
        case cudaStreamCaptureStatusInvalidated:
            return status{code::wrong_state,
                          fmt::format("stream {} is in a capture that CUDA has given up, because of a call that a "
                                      "capture forbids; end the capture and look at what was called in it",
                                      number_of(stream))};
        case cudaStreamCaptureStatusNone:
            break;
    }
    return capture_id::none;
}

// ------------------------------------------------------------------------------------------------- events --

result<event_id> cuda_device::create_event(event_kind kind) {
    if (!errors_.usable()) {
        return errors_.refusal();
    }
    const allocation_scope scope(context_);
    EBB_TRY(scope.why());
    cudaEvent_t handle = nullptr;
    const unsigned flags = kind == event_kind::timed ? cudaEventDefault : cudaEventDisableTiming;
    EBB_TRY(errors_.check(api_.event_create_with_flags(&handle, flags), "cudaEventCreateWithFlags",
                          [] { return std::string("creating an event"); }));
    result<event_id> added = events_.add(handle, kind);
    if (!added.ok()) {
        errors_.ignore(api_.event_destroy(handle));
    }
    return added;
}

status cuda_device::destroy_event(event_id event) {
    const result<cudaEvent_t> removed = events_.remove(event);
    if (!removed.ok()) {
        return removed.why();
    }
    if (!errors_.usable()) {
        return {};
    }
    const asking_scope scope(context_);
    EBB_TRY(scope.why());
    return errors_.check(api_.event_destroy(removed.value()), "cudaEventDestroy",
                         [&] { return fmt::format("destroying event {}", number_of(event)); });
}

status cuda_device::record_event(event_id event, stream_id stream) {
    cuda_events::slot *found = events_.find(event);
    if (found == nullptr) {
        return cuda_events::refusal(event);
    }
    EBB_TRY(on_stream(stream, [&](cudaStream_t handle) {
        return errors_.check(
            api_.event_record(found->handle.load(std::memory_order_relaxed), handle), "cudaEventRecord",
            [&] { return fmt::format("recording event {} on stream {}", number_of(event), number_of(stream)); });
    }));
    if (!found->recorded.load(std::memory_order_relaxed)) {
        found->recorded.store(true, std::memory_order_release);
    }
    return {};
}

status cuda_device::wait_event(stream_id stream, event_id event) {
    cuda_events::slot *found = events_.find(event);
    if (found == nullptr) {
        return cuda_events::refusal(event);
    }
    // CUDA takes it for done, and the order that the caller wanted would silently not be there.
    if (!found->recorded.load(std::memory_order_acquire)) {
        return {code::invalid_argument,
                fmt::format("wait_event: event {} was never recorded, so stream {} would wait for nothing; record it "
                            "first",
                            number_of(event), number_of(stream))};
    }
    return on_stream(stream, [&](cudaStream_t handle) {
        return errors_.check(
            api_.stream_wait_event(handle, found->handle.load(std::memory_order_relaxed), 0), "cudaStreamWaitEvent",
            [&] { return fmt::format("making stream {} wait for event {}", number_of(stream), number_of(event)); });
    });
}

result<bool> cuda_device::event_done(event_id event) {
    cuda_events::slot *found = events_.find(event);
    if (found == nullptr) {
        return cuda_events::refusal(event);
    }
    if (!errors_.usable()) {
        return errors_.refusal();
    }
    const asking_scope scope(context_);
    EBB_TRY(scope.why());
    const cudaError_t answer = api_.event_query(found->handle.load(std::memory_order_relaxed));
    if (answer == cudaErrorNotReady) {
        errors_.forget(answer);
        return false;
    }
    EBB_TRY(errors_.check(answer, "cudaEventQuery",
                          [&] { return fmt::format("asking whether event {} is done", number_of(event)); }));
    return true;
}

status cuda_device::synchronize_event(event_id event) {
    cuda_events::slot *found = events_.find(event);
    if (found == nullptr) {
        return cuda_events::refusal(event);
    }
    if (!errors_.usable()) {
        return errors_.refusal();
    }
    const asking_scope scope(context_);
    EBB_TRY(scope.why());
    return errors_.check(api_.event_synchronize(found->handle.load(std::memory_order_relaxed)), "cudaEventSynchronize",
                         [&] { return fmt::format("waiting for event {}", number_of(event)); });
}

status cuda_device::check_timed(event_id event, const char *which) {
    const cuda_events::slot *found = events_.find(event);
    if (found == nullptr) {
        return cuda_events::refusal(event);
    }
    if (found->kind.load(std::memory_order_relaxed) != event_kind::timed) {
        return {code::invalid_argument,
                fmt::format("elapsed_ns: the {} event {} takes no times; create it as event_kind::timed", which,
                            number_of(event))};
    }
    if (!found->recorded.load(std::memory_order_acquire)) {
        return {code::invalid_argument,
                fmt::format("elapsed_ns: the {} event {} was never recorded", which, number_of(event))};
    }
    return {};
}

result<uint64_t> cuda_device::elapsed_ns(event_id start, event_id end) {
    EBB_TRY(check_timed(start, "start"));
    EBB_TRY(check_timed(end, "end"));
    if (!errors_.usable()) {
        return errors_.refusal();
    }
    const asking_scope scope(context_);
    EBB_TRY(scope.why());
    float milliseconds = 0;
    const cudaError_t answer =
        api_.event_elapsed_time(&milliseconds, events_.find(start)->handle.load(std::memory_order_relaxed),
                                events_.find(end)->handle.load(std::memory_order_relaxed));
    if (answer == cudaErrorNotReady) {
        errors_.forget(answer);
        return status{code::wrong_state,
                      fmt::format("elapsed_ns: event {} or {} is not done; ask event_done or call synchronize_event "
                                  "first",
                                  number_of(start), number_of(end))};
    }
    EBB_TRY(errors_.check(answer, "cudaEventElapsedTime", [&] {
        return fmt::format("the time between events {} and {}", number_of(start), number_of(end));
    }));
    constexpr double k_ns_per_ms = 1e6;
    // Events of different streams may have passed the other way round: no time between them then.
    return static_cast<uint64_t>(std::llround(std::max(0.0F, milliseconds) * k_ns_per_ms));
}

// ------------------------------------------------------------------------------------------------- copies --

status cuda_device::copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                         uint64_t size_bytes) {
    if (size_bytes == 0) {
        return check_stream(stream);
    }
    EBB_TRY(check_copy_arguments(destination, source, size_bytes));
    return on_stream(stream, [&](cudaStream_t handle) {
        return errors_.check(api_.memcpy_async(destination, source, size_bytes, kind_of(direction), handle),
                             "cudaMemcpyAsync", [&] {
                                 return fmt::format("copy of {} bytes {} on stream {}, {} to {}", size_bytes,
                                                    direction_name(direction), number_of(stream), source, destination);
                             });
    });
}

// A call of CUDA costs a few microseconds, in which a link moves some hundred KiB: larger pieces hide their own calls.
bool cuda_device::may_batch(stream_id stream, const copy_piece *pieces, uint32_t count) const noexcept {
    constexpr uint64_t k_small_bytes = 1ULL << 20U;
    if (count < 2 || api_.memcpy_batch_async == nullptr || cuda_streams::is_legacy(stream)) {
        return false;
    }
    return std::all_of(pieces, pieces + count, [](const copy_piece &piece) {
        return piece.size_bytes > 0 && piece.size_bytes <= k_small_bytes;
    });
}

status cuda_device::copy_pieces(stream_id stream, copy_direction direction, const copy_piece *pieces, uint32_t count) {
    if (may_batch(stream, pieces, count)) {
        for (uint32_t i = 0; i < count; ++i) {
            EBB_TRY(check_copy_arguments(pieces[i].destination, pieces[i].source, pieces[i].size_bytes));
        }
        // A batch cannot become part of a graph.
        const result<capture_id> capture = capture_of(stream);
        if (!capture.ok()) {
            return capture.why();
        }
        if (capture.value() == capture_id::none) {
            return on_stream(stream, [&](cudaStream_t handle) { return copy_batch(handle, direction, pieces, count); });
        }
    }
    return device::copy_pieces(stream, direction, pieces, count);
}

status cuda_device::copy_batch(cudaStream_t stream, copy_direction direction, const copy_piece *pieces,
                               uint32_t count) {
    constexpr uint32_t k_most = 64;
    std::array<void *, k_most> destinations;
    std::array<const void *, k_most> sources;
    std::array<size_t, k_most> sizes;
    for (uint32_t first = 0; first < count; first += k_most) {
        const uint32_t some = std::min(k_most, count - first);
        for (uint32_t i = 0; i < some; ++i) {
            destinations[i] = pieces[first + i].destination;
            sources[i] = pieces[first + i].source;
            sizes[i] = pieces[first + i].size_bytes;
        }
        cudaMemcpyAttributes attributes{};
        attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
        size_t first_with_them = 0;
        EBB_TRY(errors_.check(api_.memcpy_batch_async(destinations.data(), sources.data(), sizes.data(), some,
                                                      &attributes, &first_with_them, 1, stream),
                              "cudaMemcpyBatchAsync",
                              [&] { return fmt::format("copy of {} pieces {}", some, direction_name(direction)); }));
    }
    return {};
}

status cuda_device::checksum(stream_id stream, const void *data, uint64_t size_bytes, uint64_t *accumulator) {
    EBB_TRY(check_checksum_arguments(data, size_bytes, accumulator));
    if (!errors_.usable()) {
        return errors_.refusal();
    }
    cudaStream_t handle = nullptr;
    if (!streams_.find(stream, handle)) {
        return cuda_streams::refusal(stream);
    }
    if (size_bytes == 0) {
        return {};
    }
    // The orders between checksums that use our scratch memory would reach out of the capture.
    const result<capture_id> capture = capture_of(stream);
    EBB_TRY(capture.why());
    if (capture.value() != capture_id::none) {
        return {code::unsupported,
                fmt::format("checksum of {} bytes: stream {} is in a capture, and no graph can hold it", size_bytes,
                            number_of(stream))};
    }
    // The first launch of a kernel may load it, which another thread's capture forbids.
    const allocation_scope scope(context_);
    EBB_TRY(scope.why());
    return scratch_.launch(handle, data, size_bytes, accumulator);
}

}  // namespace ebb
