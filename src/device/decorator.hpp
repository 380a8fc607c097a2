// Passes every call on to another device: what decorators derive from, so that each says only what it changes.
#pragma once

#include "device/device.hpp"

namespace ebb {

class device_decorator : public device {
public:
    // The device outlives the decorator.
    explicit device_decorator(device &inner) : inner_(inner) {}
    device_decorator(const device_decorator &) = delete;
    device_decorator &operator=(const device_decorator &) = delete;

    [[nodiscard]] const device_info &info() const noexcept override { return inner_.info(); }
    result<void *> alloc_device(uint64_t size_bytes) override { return inner_.alloc_device(size_bytes); }
    status free_device(void *data, uint64_t size_bytes) override { return inner_.free_device(data, size_bytes); }
    [[nodiscard]] device_memory memory() const override { return inner_.memory(); }
    result<void *> map_host(uint64_t size_bytes) override { return inner_.map_host(size_bytes); }
    status unmap_host(void *data, uint64_t size_bytes) override { return inner_.unmap_host(data, size_bytes); }
    [[nodiscard]] uint64_t host_room_bytes() const override { return inner_.host_room_bytes(); }
    result<stream_id> create_stream(stream_role role) override { return inner_.create_stream(role); }
    status destroy_stream(stream_id stream) override { return inner_.destroy_stream(stream); }
    [[nodiscard]] status check_stream(stream_id stream) const override { return inner_.check_stream(stream); }
    result<event_id> create_event(event_kind kind) override { return inner_.create_event(kind); }
    status destroy_event(event_id event) override { return inner_.destroy_event(event); }
    status record_event(event_id event, stream_id stream) override { return inner_.record_event(event, stream); }
    status wait_event(stream_id stream, event_id event) override { return inner_.wait_event(stream, event); }
    result<bool> event_done(event_id event) override { return inner_.event_done(event); }
    status synchronize_event(event_id event) override { return inner_.synchronize_event(event); }
    result<uint64_t> elapsed_ns(event_id start, event_id end) override { return inner_.elapsed_ns(start, end); }
    status copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                uint64_t size_bytes) override {
        return inner_.copy(stream, direction, destination, source, size_bytes);
    }
    status copy_by_thread(copy_direction direction, void *destination, const void *source, uint64_t size_bytes,
                          uint64_t *time_ns) override {
        return inner_.copy_by_thread(direction, destination, source, size_bytes, time_ns);
    }
    status checksum(stream_id stream, const void *data, uint64_t size_bytes, uint64_t *accumulator) override {
        return inner_.checksum(stream, data, size_bytes, accumulator);
    }
    result<capture_id> capture_of(stream_id stream) override { return inner_.capture_of(stream); }
    void begin_range(const char *what, const char *name, uint64_t size_bytes) noexcept override {
        inner_.begin_range(what, name, size_bytes);
    }
    void end_range() noexcept override { inner_.end_range(); }

protected:
    [[nodiscard]] device &inner() const noexcept { return inner_; }

private:
    device &inner_;
};

}  // namespace ebb
