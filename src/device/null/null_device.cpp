#include "device/null/null_device.hpp"

#include <fmt/core.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace ebb {
namespace {

// A plain addition: nothing here may cost what a locked one does.
void add(std::atomic<uint64_t> &counter, uint64_t amount) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

}  // namespace

null_device::null_device(const null_device_options &options)
    : device_memory_{"device memory", options.capacity_bytes, code::out_of_device_memory},
      host_memory_{"pinned host memory", options.host_room_bytes, code::out_of_host_memory} {
    info_.name = "null";
}

null_device::~null_device() {
    for (const reservations *kind : {&device_memory_, &host_memory_}) {
        for (const auto &[data, size_bytes] : kind->sizes) {
            munmap(data, size_bytes);
        }
    }
}

void null_device::count(call_kind kind) noexcept {
    add(calls_[static_cast<size_t>(kind)], 1);
}

uint64_t null_device::calls(call_kind kind) const noexcept {
    return calls_[static_cast<size_t>(kind)].load(std::memory_order_relaxed);
}

result<void *> null_device::reserve(reservations &from, uint64_t size_bytes) {
    if (size_bytes == 0) {
        return status{code::invalid_argument, fmt::format("{}: 0 bytes wanted; ask for at least 1", from.what)};
    }
    const std::lock_guard lock(memory_mutex_);
    if (size_bytes > from.capacity_bytes - from.used_bytes) {
        return status{from.refusal,
                      fmt::format("{} of the null device: {} bytes wanted, {} bytes held, the cap is {} bytes",
                                  from.what, size_bytes, from.used_bytes, from.capacity_bytes)};
    }
    void *data = mmap(nullptr, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
        return status{from.refusal, fmt::format("{} of the null device: {} bytes of address space refused ({})",
                                                from.what, size_bytes, std::strerror(errno))};
    }
    from.used_bytes += size_bytes;
    from.sizes[data] = size_bytes;
    return data;
}

status null_device::unreserve(reservations &from, void *data, uint64_t size_bytes) {
    const std::lock_guard lock(memory_mutex_);
    const auto found = from.sizes.find(data);
    if (found == from.sizes.end() || found->second != size_bytes) {
        return {code::invalid_argument,
                fmt::format("{} of the null device: no {} bytes at {} were given out", from.what, size_bytes, data)};
    }
    munmap(data, size_bytes);
    from.used_bytes -= size_bytes;
    from.sizes.erase(found);
    return {};
}

result<void *> null_device::alloc_device(uint64_t size_bytes) {
    count(call_kind::alloc_device);
    return reserve(device_memory_, size_bytes);
}

status null_device::free_device(void *data, uint64_t size_bytes) {
    count(call_kind::free_device);
    return unreserve(device_memory_, data, size_bytes);
}

device_memory null_device::memory() const {
    const std::lock_guard lock(memory_mutex_);
    return {device_memory_.capacity_bytes, device_memory_.capacity_bytes - device_memory_.used_bytes};
}

result<void *> null_device::map_host(uint64_t size_bytes) {
    count(call_kind::map_host);
    return reserve(host_memory_, size_bytes);
}

status null_device::unmap_host(void *data, uint64_t size_bytes) {
    count(call_kind::unmap_host);
    return unreserve(host_memory_, data, size_bytes);
}

uint64_t null_device::host_room_bytes() const {
    const std::lock_guard lock(memory_mutex_);
    return host_memory_.capacity_bytes - host_memory_.used_bytes;
}

result<stream_id> null_device::create_stream(stream_role /*role*/) {
    count(call_kind::create_stream);
    return stream_id{next_number_.fetch_add(1, std::memory_order_relaxed)};
}

status null_device::destroy_stream(stream_id /*stream*/) {
    count(call_kind::destroy_stream);
    return {};
}

status null_device::check_stream(stream_id /*stream*/) const {
    return {};
}

result<event_id> null_device::create_event(event_kind /*kind*/) {
    count(call_kind::create_event);
    return event_id{next_number_.fetch_add(1, std::memory_order_relaxed)};
}

status null_device::destroy_event(event_id /*event*/) {
    count(call_kind::destroy_event);
    return {};
}

status null_device::record_event(event_id /*event*/, stream_id /*stream*/) {
    count(call_kind::record_event);
    return {};
}

status null_device::wait_event(stream_id /*stream*/, event_id /*event*/) {
    count(call_kind::wait_event);
    return {};
}

result<bool> null_device::event_done(event_id /*event*/) {
    count(call_kind::event_done);
    return true;
}

status null_device::synchronize_event(event_id /*event*/) {
    count(call_kind::synchronize_event);
    return {};
}

result<uint64_t> null_device::elapsed_ns(event_id /*start*/, event_id /*end*/) {
    count(call_kind::elapsed);
    return uint64_t{0};
}

status null_device::copy(stream_id /*stream*/, copy_direction /*direction*/, void * /*destination*/,
                         const void * /*source*/, uint64_t size_bytes) {
    count(call_kind::copy);
    add(copied_bytes_, size_bytes);
    return {};
}

status null_device::checksum(stream_id /*stream*/, const void * /*data*/, uint64_t /*size_bytes*/,
                             uint64_t * /*accumulator*/) {
    count(call_kind::checksum);
    return {};
}

}  // namespace ebb
