#include "device/trace/trace_device.hpp"

#include <fmt/core.h>

namespace ebb {
namespace {

uint32_t number_of(std::unordered_map<uint64_t, uint32_t> &numbers, uint64_t id) {
    return numbers.try_emplace(id, static_cast<uint32_t>(numbers.size() + 1)).first->second;
}

const char *direction_name(copy_direction direction) noexcept {
    switch (direction) {
        case copy_direction::d2h:
            return "d2h";
        case copy_direction::h2d:
            return "h2d";
        case copy_direction::d2d:
            return "d2d";
    }
    return "unknown direction";
}

std::string to_string(const trace_place &place) {
    return fmt::format("{} {}+{}", place.from_device ? "block" : "foreign", place.region, place.offset_bytes);
}

}  // namespace

std::string to_string(const trace_entry &entry) {
    std::string text = fmt::format("{} {}", call_kind_name(entry.kind), code_name(entry.result));
    if (entry.stream != 0) {
        text += fmt::format(" stream {}", entry.stream);
    }
    if (entry.event != 0) {
        text += fmt::format(" event {}", entry.event);
    }
    if (entry.kind == call_kind::copy) {
        text += fmt::format(" {} {} <-", direction_name(entry.direction), to_string(entry.destination));
    }
    if (entry.source.region != 0) {
        text += fmt::format(" {}, {} bytes", to_string(entry.source), entry.size_bytes);
    }
    return text;
}

void trace_device::record(bool on) {
    const std::lock_guard lock(mutex_);
    on_ = on;
}

void trace_device::clear() {
    const std::lock_guard lock(mutex_);
    entries_.clear();
}

std::vector<trace_entry> trace_device::entries() const {
    const std::lock_guard lock(mutex_);
    return entries_;
}

std::vector<trace_entry> trace_device::entries(call_kind kind) const {
    std::vector<trace_entry> chosen;
    for (const trace_entry &entry : entries()) {
        if (entry.kind == kind) {
            chosen.push_back(entry);
        }
    }
    return chosen;
}

void trace_device::add(trace_entry entry) {
    if (on_) {
        entries_.push_back(entry);
    }
}

uint32_t trace_device::stream_number(stream_id stream) {
    return number_of(streams_, static_cast<uint64_t>(stream));
}

uint32_t trace_device::event_number(event_id event) {
    return number_of(events_, static_cast<uint64_t>(event));
}

trace_place trace_device::place(const void *data) {
    if (data == nullptr) {
        return {};
    }
    if (auto above = regions_.upper_bound(data); above != regions_.begin()) {
        const auto &[start, held] = *--above;
        const uint64_t offset = reinterpret_cast<uintptr_t>(data) - reinterpret_cast<uintptr_t>(start);
        if (offset < held.size_bytes) {
            return {held.number, true, offset};
        }
    }
    return {foreign_.try_emplace(data, static_cast<uint32_t>(foreign_.size() + 1)).first->second, false, 0};
}

result<void *> trace_device::add_allocation(call_kind kind, uint64_t size_bytes, const result<void *> &given) {
    const std::lock_guard lock(mutex_);
    trace_entry entry;
    entry.kind = kind;
    entry.result = given.ok() ? code::ok : given.why().code();
    entry.size_bytes = size_bytes;
    if (given.ok()) {
        regions_[given.value()] = {size_bytes, ++region_count_};
        entry.source = place(given.value());
    }
    add(entry);
    return given;
}

status trace_device::add_release(call_kind kind, void *data, uint64_t size_bytes, const status &released) {
    const std::lock_guard lock(mutex_);
    trace_entry entry;
    entry.kind = kind;
    entry.result = released.code();
    entry.size_bytes = size_bytes;
    entry.source = place(data);
    if (released.ok()) {
        regions_.erase(data);
    }
    add(entry);
    return released;
}

void trace_device::add_event_call(call_kind kind, code result, event_id event, const stream_id *stream) {
    const std::lock_guard lock(mutex_);
    trace_entry entry;
    entry.kind = kind;
    entry.result = result;
    entry.event = event_number(event);
    entry.stream = stream == nullptr ? 0 : stream_number(*stream);
    add(entry);
}

result<void *> trace_device::alloc_device(uint64_t size_bytes) {
    return add_allocation(call_kind::alloc_device, size_bytes, inner().alloc_device(size_bytes));
}

result<void *> trace_device::map_host(uint64_t size_bytes) {
    return add_allocation(call_kind::map_host, size_bytes, inner().map_host(size_bytes));
}

status trace_device::free_device(void *data, uint64_t size_bytes) {
    return add_release(call_kind::free_device, data, size_bytes, inner().free_device(data, size_bytes));
}

status trace_device::unmap_host(void *data, uint64_t size_bytes) {
    return add_release(call_kind::unmap_host, data, size_bytes, inner().unmap_host(data, size_bytes));
}

result<stream_id> trace_device::create_stream(stream_role role) {
    result<stream_id> created = inner().create_stream(role);
    const std::lock_guard lock(mutex_);
    trace_entry entry;
    entry.kind = call_kind::create_stream;
    entry.result = created.ok() ? code::ok : created.why().code();
    entry.stream = created.ok() ? stream_number(created.value()) : 0;
    add(entry);
    return created;
}

status trace_device::destroy_stream(stream_id stream) {
    status destroyed = inner().destroy_stream(stream);
    const std::lock_guard lock(mutex_);
    trace_entry entry;
    entry.kind = call_kind::destroy_stream;
    entry.result = destroyed.code();
    entry.stream = stream_number(stream);
    add(entry);
    return destroyed;
}

result<event_id> trace_device::create_event(event_kind kind) {
    result<event_id> created = inner().create_event(kind);
    if (created.ok()) {
        add_event_call(call_kind::create_event, code::ok, created.value(), nullptr);
    } else {
        const std::lock_guard lock(mutex_);
        trace_entry entry;
        entry.kind = call_kind::create_event;
        entry.result = created.why().code();
        add(entry);
    }
    return created;
}

status trace_device::destroy_event(event_id event) {
    status destroyed = inner().destroy_event(event);
    add_event_call(call_kind::destroy_event, destroyed.code(), event, nullptr);
    return destroyed;
}

status trace_device::record_event(event_id event, stream_id stream) {
    status recorded = inner().record_event(event, stream);
    add_event_call(call_kind::record_event, recorded.code(), event, &stream);
    return recorded;
}

status trace_device::wait_event(stream_id stream, event_id event) {
    status waited = inner().wait_event(stream, event);
    add_event_call(call_kind::wait_event, waited.code(), event, &stream);
    return waited;
}

result<bool> trace_device::event_done(event_id event) {
    result<bool> done = inner().event_done(event);
    add_event_call(call_kind::event_done, done.ok() ? code::ok : done.why().code(), event, nullptr);
    return done;
}

status trace_device::synchronize_event(event_id event) {
    status synchronized = inner().synchronize_event(event);
    add_event_call(call_kind::synchronize_event, synchronized.code(), event, nullptr);
    return synchronized;
}

result<uint64_t> trace_device::elapsed_ns(event_id start, event_id end) {
    result<uint64_t> elapsed = inner().elapsed_ns(start, end);
    add_event_call(call_kind::elapsed, elapsed.ok() ? code::ok : elapsed.why().code(), end, nullptr);
    return elapsed;
}

status trace_device::copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                          uint64_t size_bytes) {
    status copied = inner().copy(stream, direction, destination, source, size_bytes);
    note_copy(stream, direction, destination, source, size_bytes, copied.code());
    return copied;
}

status trace_device::copy_by_thread(copy_direction direction, void *destination, const void *source,
                                    uint64_t size_bytes, uint64_t *time_ns) {
    status copied = inner().copy_by_thread(direction, destination, source, size_bytes, time_ns);
    note_copy(k_calling_thread, direction, destination, source, size_bytes, copied.code());
    return copied;
}

void trace_device::note_copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                             uint64_t size_bytes, code result) {
    const std::lock_guard lock(mutex_);
    trace_entry entry;
    entry.kind = call_kind::copy;
    entry.result = result;
    entry.stream = stream_number(stream);
    entry.direction = direction;
    entry.destination = place(destination);
    entry.source = place(source);
    entry.size_bytes = size_bytes;
    add(entry);
}

status trace_device::checksum(stream_id stream, const void *data, uint64_t size_bytes, uint64_t *accumulator) {
    status summed = inner().checksum(stream, data, size_bytes, accumulator);
    const std::lock_guard lock(mutex_);
    trace_entry entry;
    entry.kind = call_kind::checksum;
    entry.result = summed.code();
    entry.stream = stream_number(stream);
    entry.source = place(data);
    entry.size_bytes = size_bytes;
    add(entry);
    return summed;
}

}  // namespace ebb
