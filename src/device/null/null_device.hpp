// The null device: calls do nothing and return at once, every event is done. What is left of a run on it is our own
// cost. Memory is reserved address space without pages: it has addresses and sizes, and must not be touched.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "device/call_kind.hpp"
#include "device/device.hpp"
#include "device/reserved_memory.hpp"

namespace ebb {

struct null_device_options {
    uint64_t capacity_bytes = 16ULL << 40U;   // of device memory
    uint64_t host_room_bytes = 16ULL << 40U;  // for map_host
};

class null_device : public device {
public:
    explicit null_device(const null_device_options &options = {});
    ~null_device() override = default;
    null_device(const null_device &) = delete;
    null_device &operator=(const null_device &) = delete;

    [[nodiscard]] const device_info &info() const noexcept override { return info_; }

    result<void *> alloc_device(uint64_t size_bytes) override;
    status free_device(void *data, uint64_t size_bytes) override;
    [[nodiscard]] device_memory memory() const override;
    result<void *> map_host(uint64_t size_bytes) override;
    status unmap_host(void *data, uint64_t size_bytes) override;
    [[nodiscard]] uint64_t host_room_bytes() const override;

    // Streams and events are numbers; whatever the number, the call succeeds.
    result<stream_id> create_stream(stream_role role) override;
    status destroy_stream(stream_id stream) override;
    [[nodiscard]] status check_stream(stream_id stream) const override;
    result<event_id> create_event(event_kind kind) override;
    status destroy_event(event_id event) override;
    status record_event(event_id event, stream_id stream) override;
    status wait_event(stream_id stream, event_id event) override;
    result<bool> event_done(event_id event) override;
    status synchronize_event(event_id event) override;
    result<uint64_t> elapsed_ns(event_id start, event_id end) override;
    status copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                uint64_t size_bytes) override;
    status copy_by_thread(copy_direction direction, void *destination, const void *source, uint64_t size_bytes,
                          uint64_t * /*time_ns*/) override {
        return copy({}, direction, destination, source, size_bytes);
    }
    status checksum(stream_id stream, const void *data, uint64_t size_bytes, uint64_t *accumulator) override;

    // Calls of that kind so far, and bytes that copies were asked to move. Cheap rather than exact: calls from several
    // threads at once may be counted as one.
    [[nodiscard]] uint64_t calls(call_kind kind) const noexcept;
    [[nodiscard]] uint64_t copied_bytes() const noexcept { return copied_bytes_.load(std::memory_order_relaxed); }

private:
    void count(call_kind kind) noexcept;

    device_info info_;
    reserved_memory device_memory_;
    reserved_memory host_memory_;
    std::atomic<uint64_t> next_number_{16};  // behind the numbers that mean something elsewhere
    std::array<std::atomic<uint64_t>, k_call_kinds> calls_{};
    std::atomic<uint64_t> copied_bytes_{0};
};

}  // namespace ebb
