#include "device/host/host_device.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "device/copy_arguments.hpp"

namespace ebb {

host_device::host_device(const host_device_options &options)
    : options_(options),
      engines_{copy_engine(options.d2h_bytes_per_second), copy_engine(options.h2d_bytes_per_second), {}},
      streams_(engines_),
      retired_(streams_),
      arena_(options.capacity_bytes, options.prefault_threads, retired_) {
    constexpr uint64_t k_slab_bytes = 256ULL << 20U;  // hosts without a GPU tend to be smaller
    info_.name = "host";
    info_.type = memory_type::cpu;
    info_.threads_copy = true;
    info_.slab_bytes = k_slab_bytes;
}

host_device::~host_device() {
    streams_.finish();
    for (const auto &[data, mapped] : mappings_) {
        unmap_pages(mapped.pages);
    }
}

// ------------------------------------------------------------------------------------------------- memory --

result<void *> host_device::alloc_device(uint64_t size_bytes) {
    return arena_.allocate(size_bytes, memory_owner::core);
}

result<void *> host_device::alloc_for_caller(uint64_t size_bytes) {
    return arena_.allocate(size_bytes, memory_owner::caller);
}

status host_device::free_device(void *data, uint64_t size_bytes) {
    return arena_.free(data, size_bytes);
}

status host_device::free_device(void *data) {
    return arena_.free(data);
}

device_memory host_device::memory() const {
    const device_arena_statistics arena = arena_.statistics();
    return {arena.capacity_bytes, arena.capacity_bytes - arena.used_bytes};
}

// Device memory that the arena has not taken from the system yet comes out of the same room.
host_room host_device::room() const {
    host_room room = read_host_room(options_.system_root);
    const device_arena_statistics arena = arena_.statistics();
    const uint64_t promised_bytes = arena.capacity_bytes - arena.used_bytes - arena.cached_bytes;
    if (room.limiter != memory_limiter::none) {
        room.room_bytes -= std::min(room.room_bytes, promised_bytes);
    }
    return room;
}

uint64_t host_device::host_room_bytes() const {
    return room().room_bytes;
}

result<void *> host_device::map_host(uint64_t size_bytes) {
    if (size_bytes == 0) {
        return status{code::invalid_argument, "map_host: 0 bytes wanted; ask for at least 1"};
    }
    retired_.collect();
    if (const host_room left = room(); size_bytes > left.room_bytes) {
        return status{
            code::out_of_host_memory,
            fmt::format("pinned host memory: {} bytes wanted, room for {} bytes beside the {} bytes of device "
                        "memory that the host device may take; limited by {}",
                        size_bytes, left.room_bytes, options_.capacity_bytes, explain(left))};
    }
    const result<host_pages> pages = map_pages(size_bytes, options_.prefault_threads);
    if (!pages.ok()) {
        return status{pages.why().code(), fmt::format("pinned host memory: {}", pages.why().text())};
    }
    const mapping added{size_bytes, pages.value(), lock_pages(pages.value())};
    const std::lock_guard lock(mappings_mutex_);
    mappings_[added.pages.data] = added;
    ++mapped_.host_maps;
    mapped_.host_mapped_bytes += size_bytes;
    mapped_.host_unlocked_bytes += added.locked ? 0 : size_bytes;
    return added.pages.data;
}

status host_device::unmap_host(void *data, uint64_t size_bytes) {
    const std::lock_guard lock(mappings_mutex_);
    const auto found = mappings_.find(data);
    if (found == mappings_.end()) {
        return {code::invalid_argument,
                fmt::format("unmap_host: {} was not mapped by this device, or was unmapped before", data)};
    }
    const mapping removed = found->second;
    if (removed.size_bytes != size_bytes) {
        return {code::invalid_argument, fmt::format("unmap_host: the mapping at {} has {} bytes, not {}", data,
                                                    removed.size_bytes, size_bytes)};
    }
    mappings_.erase(found);
    mapped_.host_mapped_bytes -= size_bytes;
    mapped_.host_unlocked_bytes -= removed.locked ? 0 : size_bytes;
    retired_.add(removed.pages);
    retired_.collect();
    return {};
}

// ------------------------------------------------------------------------------------- streams and events --

result<stream_id> host_device::create_stream(stream_role role) {
    return streams_.create(role);
}

status host_device::destroy_stream(stream_id stream) {
    return streams_.destroy(stream);
}

status host_device::check_stream(stream_id stream) const {
    return streams_.check(stream);
}

status host_device::enqueue(stream_id stream, const operation &added) {
    const result<host_stream *> found = streams_.find(stream);
    return found.ok() ? found.value()->enqueue(stream, added) : found.why();
}

result<event_id> host_device::create_event(event_kind kind) {
    return events_.create(kind);
}

status host_device::destroy_event(event_id event) {
    return events_.destroy(event);
}

status host_device::record_event(event_id event, stream_id stream) {
    const result<marker *> point = events_.new_marker(event);
    if (!point.ok()) {
        return point.why();
    }
    operation record;
    record.kind = operation_kind::record;
    record.point = point.value();
    if (status enqueued = enqueue(stream, record); !enqueued.ok()) {
        engines_.markers.release(point.value());
        engines_.markers.release(point.value());
        return enqueued;
    }
    return events_.set_latest(event, point.value());
}

status host_device::wait_event(stream_id stream, event_id event) {
    const result<marker *> point = events_.latest(event);
    if (!point.ok()) {
        return point.why();
    }
    if (point.value() == nullptr) {
        return {code::invalid_argument,
                fmt::format("wait_event: event {} was never recorded, so stream {} would wait for "
                            "nothing; record it first",
                            static_cast<uint64_t>(event), static_cast<uint64_t>(stream))};
    }
    operation wait;
    wait.kind = operation_kind::wait;
    wait.point = point.value();
    status enqueued = enqueue(stream, wait);
    if (!enqueued.ok()) {
        engines_.markers.release(point.value());
    }
    return enqueued;
}

result<bool> host_device::event_done(event_id event) {
    return events_.done(event);
}

status host_device::synchronize_event(event_id event) {
    const result<marker *> point = events_.latest(event);
    if (!point.ok()) {
        return point.why();
    }
    if (point.value() != nullptr) {
        point.value()->wait();
        engines_.markers.release(point.value());
    }
    return {};
}

result<uint64_t> host_device::elapsed_ns(event_id start, event_id end) {
    return events_.elapsed_ns(start, end);
}

// --------------------------------------------------------------------------------------------- operations --

status host_device::copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                         uint64_t size_bytes) {
    EBB_TRY(check_copy_arguments(destination, source, size_bytes));
    if (size_bytes == 0) {
        return streams_.check(stream);
    }
    operation copied;
    copied.kind = operation_kind::copy;
    copied.direction = direction;
    copied.target = destination;
    copied.source = source;
    copied.size_bytes = size_bytes;
    return enqueue(stream, copied);
}

status host_device::copy_by_thread(copy_direction direction, void *destination, const void *source, uint64_t size_bytes,
                                   uint64_t *time_ns) {
    EBB_TRY(check_copy_arguments(destination, source, size_bytes));
    if (size_bytes == 0) {
        return {};
    }
    if (time_ns == nullptr) {
        engines_.copy(direction, destination, source, size_bytes);
        return {};
    }
    const auto begin = std::chrono::steady_clock::now();
    engines_.copy(direction, destination, source, size_bytes);
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
    *time_ns += static_cast<uint64_t>(took.count());
    return {};
}

status host_device::checksum(stream_id stream, const void *data, uint64_t size_bytes, uint64_t *accumulator) {
    EBB_TRY(check_checksum_arguments(data, size_bytes, accumulator));
    operation summed;
    summed.kind = operation_kind::checksum;
    summed.target = accumulator;
    summed.source = data;
    summed.size_bytes = size_bytes;
    return enqueue(stream, summed);
}

status host_device::launch(stream_id stream, void (*function)(void *argument), void *argument) {
    if (function == nullptr) {
        return {code::invalid_argument, "launch: the function is null"};
    }
    operation launched;
    launched.kind = operation_kind::launch;
    launched.function = function;
    launched.target = argument;
    return enqueue(stream, launched);
}

status host_device::synchronize_stream(stream_id stream) {
    const result<host_stream *> found = streams_.find(stream);
    return found.ok() ? found.value()->synchronize(stream) : found.why();
}

host_device_statistics host_device::statistics() const {
    host_device_statistics all;
    {
        const std::lock_guard lock(mappings_mutex_);
        all = mapped_;
    }
    all.arena = arena_.statistics();
    all.retired_bytes = retired_.bytes();
    return all;
}

}  // namespace ebb
