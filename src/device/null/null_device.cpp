#include "device/null/null_device.hpp"

namespace ebb {
namespace {

// A plain addition: nothing here may cost what a locked one does.
void add(std::atomic<uint64_t> &counter, uint64_t amount) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

}  // namespace

null_device::null_device(const null_device_options &options)
    : device_memory_("device memory of the null device", options.capacity_bytes, code::out_of_device_memory),
      host_memory_("pinned host memory of the null device", options.host_room_bytes, code::out_of_host_memory) {
    info_.name = "null";
    info_.threads_copy = true;
}

void null_device::count(call_kind kind) noexcept {
    add(calls_[static_cast<size_t>(kind)], 1);
}

uint64_t null_device::calls(call_kind kind) const noexcept {
    return calls_[static_cast<size_t>(kind)].load(std::memory_order_relaxed);
}

result<void *> null_device::alloc_device(uint64_t size_bytes) {
    count(call_kind::alloc_device);
    return device_memory_.reserve(size_bytes);
}

status null_device::free_device(void *data, uint64_t size_bytes) {
    count(call_kind::free_device);
    return device_memory_.give_back(data, size_bytes);
}

device_memory null_device::memory() const {
    return {device_memory_.capacity_bytes(), device_memory_.free_bytes()};
}

result<void *> null_device::map_host(uint64_t size_bytes) {
    count(call_kind::map_host);
    return host_memory_.reserve(size_bytes);
}

status null_device::unmap_host(void *data, uint64_t size_bytes) {
    count(call_kind::unmap_host);
    return host_memory_.give_back(data, size_bytes);
}

uint64_t null_device::host_room_bytes() const {
    return host_memory_.free_bytes();
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
