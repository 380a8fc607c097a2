// The host device: a GPU's manners without a GPU. Real threads as streams, real copies between a capped "device"
// arena and pinned memory, one copy engine per direction. It is the embedded default and what the tests and
// ThreadSanitizer run on.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "device/device.hpp"
#include "device/host/device_arena.hpp"
#include "device/host/event_table.hpp"
#include "device/host/host_limits.hpp"
#include "device/host/host_pages.hpp"
#include "device/host/host_stream.hpp"
#include "device/host/retired_pages.hpp"
#include "device/host/stream_table.hpp"

namespace ebb {

struct host_device_options {
    uint64_t capacity_bytes = 1ULL << 30U;  // of device memory
    uint64_t d2h_bytes_per_second = 0;      // 0: no limit
    uint64_t h2d_bytes_per_second = 0;
    std::string system_root = "/";  // where the limits are read; tests give another
    uint32_t prefault_threads = 0;  // 0: as many as help
};

struct host_device_statistics {
    device_arena_statistics arena;
    uint64_t host_mapped_bytes = 0;    // by map_host, now
    uint64_t host_unlocked_bytes = 0;  // of them, those the system did not lock (RLIMIT_MEMLOCK)
    uint64_t host_maps = 0;            // calls of map_host that succeeded
    uint64_t retired_bytes = 0;        // given back, and waiting for streams to pass
};

class host_device : public device {
public:
    explicit host_device(const host_device_options &options);
    // Does everything that is enqueued, then ends the threads. Memory that is still out is unmapped.
    ~host_device() override;
    host_device(const host_device &) = delete;
    host_device &operator=(const host_device &) = delete;

    [[nodiscard]] const device_info &info() const noexcept override { return info_; }

    result<void *> alloc_device(uint64_t size_bytes) override;
    status free_device(void *data, uint64_t size_bytes) override;
    // The same for callers, who free before their streams have come to the last use: what they freed is given to
    // them alone.
    result<void *> alloc_for_caller(uint64_t size_bytes);
    // Either kind, of whatever size it is.
    status free_device(void *data);
    [[nodiscard]] device_memory memory() const override;

    result<void *> map_host(uint64_t size_bytes) override;
    status unmap_host(void *data, uint64_t size_bytes) override;
    // Device memory that was not taken from the system yet is not counted as room: it may be any time.
    [[nodiscard]] uint64_t host_room_bytes() const override;

    result<stream_id> create_stream(stream_role role) override;
    status destroy_stream(stream_id stream) override;
    [[nodiscard]] status check_stream(stream_id stream) const override;

    result<event_id> create_event(event_kind kind) override;
    status destroy_event(event_id event) override;
    status record_event(event_id event, stream_id stream) override;
    status wait_event(stream_id stream, event_id event) override;
    result<bool> event_done(event_id event) override;
    status synchronize_event(event_id event) override;
    // 0 when the end came first, which events of two streams may.
    result<uint64_t> elapsed_ns(event_id start, event_id end) override;

    status copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                uint64_t size_bytes) override;
    status copy_by_thread(copy_direction direction, void *destination, const void *source, uint64_t size_bytes,
                          uint64_t *time_ns) override;
    status checksum(stream_id stream, const void *data, uint64_t size_bytes, uint64_t *accumulator) override;

    // For callers that compute on our streams. The function runs on the stream's thread; it may enqueue, and must not
    // wait for its own stream.
    status launch(stream_id stream, void (*function)(void *argument), void *argument);
    status synchronize_stream(stream_id stream);

    [[nodiscard]] host_device_statistics statistics() const;

private:
    struct mapping {
        uint64_t size_bytes;
        host_pages pages;
        bool locked;
    };
    status enqueue(stream_id stream, const operation &added);
    [[nodiscard]] host_room room() const;

    const host_device_options options_;
    device_info info_;
    host_engines engines_;
    event_table events_{engines_.markers};
    stream_table streams_;
    retired_pages retired_;
    device_arena arena_;
    mutable std::mutex mappings_mutex_;
    std::map<void *, mapping> mappings_;
    host_device_statistics mapped_;  // the host_* fields only
};

}  // namespace ebb
