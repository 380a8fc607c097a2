#include "device/fault/fault_device.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "device/host/host_device.hpp"

namespace ebb {
namespace {

code natural_failure(call_kind kind) noexcept {
    switch (kind) {
        case call_kind::alloc_device:
            return code::out_of_device_memory;
        case call_kind::map_host:
            return code::out_of_host_memory;
        default:
            return code::device_error;
    }
}

// Between 0 and 1, from the numbers alone.
double fault_draw(uint64_t seed, uint64_t kind, uint64_t call) noexcept {
    uint64_t mixed = seed ^ (kind << 56U) ^ (call * 0x9E3779B97F4A7C15ULL);
    for (int round = 0; round < 2; ++round) {
        mixed = (mixed ^ (mixed >> 31U)) * 0xBF58476D1CE4E5B9ULL;
        mixed = (mixed ^ (mixed >> 29U)) * 0x94D049BB133111EBULL;
    }
    constexpr double k_one = 1.0 / (1ULL << 53U);
    return static_cast<double>(mixed >> 11U) * k_one;
}

}  // namespace

fault_device::fault_device(host_device &inner) : fault_device(inner, inner) {}

fault_device::fault_device(device &inner, host_device &host)
    : fault_device(inner, [&host](stream_id stream, void (*function)(void *argument), void *argument) {
          return host.launch(stream, function, argument);
      }) {}

fault_device::~fault_device() {
    for (gate &each : gates_) {
        std::unique_lock lock(each.mutex);
        each.held = false;
        each.changed.notify_all();
        each.changed.wait(lock, [&] { return each.pending == 0; });
    }
}

// ----------------------------------------------------------------------------------------------- refusals --

void fault_device::refuse(call_kind kind, uint64_t nth, uint64_t count, std::optional<code> reason) {
    const std::lock_guard lock(mutex_);
    const uint64_t first = calls_[static_cast<size_t>(kind)] + std::max<uint64_t>(nth, 1);
    refusals_.push_back({kind, first, count, reason.value_or(natural_failure(kind))});
}

void fault_device::refuse_at_random(call_kind kind, double probability, uint64_t seed) {
    const std::lock_guard lock(mutex_);
    chances_[static_cast<size_t>(kind)] = {probability, seed};
}

void fault_device::refuse_pinning_above(uint64_t total_bytes) {
    const std::lock_guard lock(mutex_);
    pinning_limit_bytes_ = total_bytes;
}

void fault_device::break_after(uint64_t calls) {
    const std::lock_guard lock(mutex_);
    calls_until_broken_ = calls;
}

void fault_device::clear() {
    const std::lock_guard lock(mutex_);
    refusals_.clear();
    chances_ = {};
    damages_.clear();
    calls_until_broken_ = k_for_good;
    pinning_limit_bytes_ = k_for_good;
}

uint64_t fault_device::calls(call_kind kind) const {
    const std::lock_guard lock(mutex_);
    return calls_[static_cast<size_t>(kind)];
}

uint64_t fault_device::refused(call_kind kind) const {
    const std::lock_guard lock(mutex_);
    return refused_[static_cast<size_t>(kind)];
}

status fault_device::admit(call_kind kind) {
    const std::lock_guard lock(mutex_);
    const uint64_t number = ++calls_[static_cast<size_t>(kind)];
    if (calls_until_broken_ == 0) {
        ++refused_[static_cast<size_t>(kind)];
        return {code::device_error, fmt::format("{}: the device is broken, as was asked for", call_kind_name(kind))};
    }
    calls_until_broken_ -= calls_until_broken_ == k_for_good ? 0 : 1;
    for (const refusal &each : refusals_) {
        if (each.kind == kind && number >= each.first && number - each.first < each.count) {
            ++refused_[static_cast<size_t>(kind)];
            return {each.reason, fmt::format("{}: call {} refused, as was asked for", call_kind_name(kind), number)};
        }
    }
    const chance &c = chances_[static_cast<size_t>(kind)];
    if (c.probability > 0 && fault_draw(c.seed, static_cast<uint64_t>(kind), number) < c.probability) {
        ++refused_[static_cast<size_t>(kind)];
        return {natural_failure(kind),
                fmt::format("{}: call {} refused by chance, as was asked for", call_kind_name(kind), number)};
    }
    return {};
}

// -------------------------------------------------------------------------------------------------- gates --

status fault_device::check_launcher(const char *call) const {
    if (launch_) {
        return {};
    }
    return {code::unsupported,
            fmt::format("{}: needs something to launch with on its streams; give it to the constructor", call)};
}

status fault_device::hold(copy_direction direction) {
    EBB_TRY(check_launcher("hold"));
    gate &at = gate_of(direction);
    const std::lock_guard lock(at.mutex);
    at.held = true;
    at.permits = 0;
    return {};
}

status fault_device::release(copy_direction direction) {
    EBB_TRY(check_launcher("release"));
    gate &at = gate_of(direction);
    const std::lock_guard lock(at.mutex);
    at.held = false;
    at.changed.notify_all();
    return {};
}

status fault_device::let_pass(copy_direction direction, uint64_t copies) {
    EBB_TRY(check_launcher("let_pass"));
    gate &at = gate_of(direction);
    const std::lock_guard lock(at.mutex);
    at.permits += copies;
    at.changed.notify_all();
    return {};
}

status fault_device::wait_until_held(copy_direction direction) {
    EBB_TRY(check_launcher("wait_until_held"));
    gate &at = gate_of(direction);
    std::unique_lock lock(at.mutex);
    at.changed.wait(lock, [&] { return at.standing > 0; });
    return {};
}

void fault_device::leave(gate &at) {
    --at.pending;
    at.changed.notify_all();
}

// On the stream's thread.
void fault_device::pass_gate(void *argument) {
    gate &at = *static_cast<gate *>(argument);
    std::unique_lock lock(at.mutex);
    ++at.standing;
    at.changed.notify_all();
    at.changed.wait(lock, [&] { return !at.held || at.permits > 0; });
    --at.standing;
    at.permits -= at.held ? 1 : 0;
    leave(at);
}

status fault_device::launch_gate(gate &at, stream_id stream) {
    {
        const std::lock_guard lock(at.mutex);
        ++at.pending;
    }
    status launched = launch_(stream, &fault_device::pass_gate, &at);
    if (!launched.ok()) {
        const std::lock_guard lock(at.mutex);
        leave(at);
    }
    return launched;
}

// ------------------------------------------------------------------------------------------------- damage --

status fault_device::damage_copy(copy_direction direction, uint64_t nth, uint64_t offset_bytes) {
    EBB_TRY(check_launcher("damage_copy"));
    const std::lock_guard lock(mutex_);
    damages_.push_back({direction, std::max<uint64_t>(nth, 1) - 1, offset_bytes});
    return {};
}

std::optional<uint64_t> fault_device::damaged_offset(copy_direction direction) {
    const std::lock_guard lock(mutex_);
    std::optional<uint64_t> offset;
    for (auto each = damages_.begin(); each != damages_.end();) {
        if (each->direction != direction) {
            ++each;
        } else if (each->copies_before > 0) {
            --each->copies_before;
            ++each;
        } else {
            offset = each->offset_bytes;
            each = damages_.erase(each);
        }
    }
    return offset;
}

void fault_device::flip_byte(void *argument) {
    const flip &flipped = *static_cast<const flip *>(argument);
    *flipped.byte ^= 1U;
    const std::lock_guard lock(flipped.at->mutex);
    leave(*flipped.at);
}

status fault_device::launch_flip(gate &at, stream_id stream, unsigned char *byte) {
    flip *flipped = nullptr;
    {
        const std::lock_guard lock(mutex_);
        flipped = &flips_.emplace_back(flip{&at, byte});
    }
    {
        const std::lock_guard lock(at.mutex);
        ++at.pending;
    }
    status launched = launch_(stream, &fault_device::flip_byte, flipped);
    if (!launched.ok()) {
        const std::lock_guard lock(at.mutex);
        leave(at);
    }
    return launched;
}

// ------------------------------------------------------------------------------------------- device calls --

result<void *> fault_device::alloc_device(uint64_t size_bytes) {
    EBB_TRY(admit(call_kind::alloc_device));
    return inner().alloc_device(size_bytes);
}

status fault_device::free_device(void *data, uint64_t size_bytes) {
    EBB_TRY(admit(call_kind::free_device));
    return inner().free_device(data, size_bytes);
}

result<void *> fault_device::map_host(uint64_t size_bytes) {
    EBB_TRY(admit(call_kind::map_host));
    {
        const std::lock_guard lock(mutex_);
        if (pinned_bytes_ > pinning_limit_bytes_ || size_bytes > pinning_limit_bytes_ - pinned_bytes_) {
            ++refused_[static_cast<size_t>(call_kind::map_host)];
            return status{code::out_of_host_memory,
                          fmt::format("map_host: pinning of {} bytes refused, {} bytes are pinned and the limit is {}",
                                      size_bytes, pinned_bytes_, pinning_limit_bytes_)};
        }
        pinned_bytes_ += size_bytes;
    }
    result<void *> mapped = inner().map_host(size_bytes);
    if (!mapped.ok()) {
        const std::lock_guard lock(mutex_);
        pinned_bytes_ -= size_bytes;
    }
    return mapped;
}

status fault_device::unmap_host(void *data, uint64_t size_bytes) {
    EBB_TRY(admit(call_kind::unmap_host));
    EBB_TRY(inner().unmap_host(data, size_bytes));
    const std::lock_guard lock(mutex_);
    pinned_bytes_ -= size_bytes;
    return {};
}

result<stream_id> fault_device::create_stream(stream_role role) {
    EBB_TRY(admit(call_kind::create_stream));
    return inner().create_stream(role);
}

status fault_device::destroy_stream(stream_id stream) {
    EBB_TRY(admit(call_kind::destroy_stream));
    return inner().destroy_stream(stream);
}

result<event_id> fault_device::create_event(event_kind kind) {
    EBB_TRY(admit(call_kind::create_event));
    return inner().create_event(kind);
}

status fault_device::destroy_event(event_id event) {
    EBB_TRY(admit(call_kind::destroy_event));
    return inner().destroy_event(event);
}

status fault_device::record_event(event_id event, stream_id stream) {
    EBB_TRY(admit(call_kind::record_event));
    return inner().record_event(event, stream);
}

status fault_device::wait_event(stream_id stream, event_id event) {
    EBB_TRY(admit(call_kind::wait_event));
    return inner().wait_event(stream, event);
}

result<bool> fault_device::event_done(event_id event) {
    EBB_TRY(admit(call_kind::event_done));
    return inner().event_done(event);
}

status fault_device::synchronize_event(event_id event) {
    EBB_TRY(admit(call_kind::synchronize_event));
    return inner().synchronize_event(event);
}

result<uint64_t> fault_device::elapsed_ns(event_id start, event_id end) {
    EBB_TRY(admit(call_kind::elapsed));
    return inner().elapsed_ns(start, end);
}

status fault_device::copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                          uint64_t size_bytes) {
    EBB_TRY(admit(call_kind::copy));
    if (!launch_ || size_bytes == 0) {
        return inner().copy(stream, direction, destination, source, size_bytes);
    }
    gate &at = gate_of(direction);
    EBB_TRY(launch_gate(at, stream));
    EBB_TRY(inner().copy(stream, direction, destination, source, size_bytes));
    if (const std::optional<uint64_t> offset = damaged_offset(direction); offset.has_value()) {
        const uint64_t byte = std::min(*offset, size_bytes - 1);
        return launch_flip(at, stream, static_cast<unsigned char *>(destination) + byte);
    }
    return {};
}

// Stands at no gate.
status fault_device::copy_by_thread(copy_direction direction, void *destination, const void *source,
                                    uint64_t size_bytes, uint64_t *time_ns) {
    EBB_TRY(admit(call_kind::copy));
    EBB_TRY(inner().copy_by_thread(direction, destination, source, size_bytes, time_ns));
    if (const std::optional<uint64_t> offset = damaged_offset(direction); offset.has_value() && size_bytes != 0) {
        static_cast<unsigned char *>(destination)[std::min(*offset, size_bytes - 1)] ^= 1U;
    }
    return {};
}

status fault_device::checksum(stream_id stream, const void *data, uint64_t size_bytes, uint64_t *accumulator) {
    EBB_TRY(admit(call_kind::checksum));
    return inner().checksum(stream, data, size_bytes, accumulator);
}

}  // namespace ebb
