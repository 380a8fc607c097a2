// A stream of the host device: a thread and its queue. The object outlives the stream it stands for and is used again
// for later ones, so that a call with a stale number finds a number that differs, not freed memory.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "base/status.hpp"
#include "device/device.hpp"
#include "device/host/copy_engine.hpp"
#include "device/host/marker.hpp"
#include "device/host/operation.hpp"
#include "device/host/sanitizer_order.hpp"

namespace ebb {

// What all streams of a device share.
struct host_engines {
    copy_engine d2h;
    copy_engine h2d;
    marker_pool markers;

    void copy(copy_direction direction, void *destination, const void *source, uint64_t size_bytes) noexcept;
};

[[nodiscard]] status no_such_stream(stream_id number);

class host_stream {
public:
    explicit host_stream(host_engines &engines) : engines_(engines) {}
    ~host_stream() { finish(); }
    host_stream(const host_stream &) = delete;
    host_stream &operator=(const host_stream &) = delete;

    // Becomes the stream of that number.
    status start(stream_id number, stream_role role);
    // Takes no more work; false when it is not, or no longer, the stream of that number.
    bool close(stream_id number);
    // Closes whatever it is, does what was enqueued, and ends the thread. This ends, because a stream waits for
    // recorded points only.
    void finish();
    void close();

    [[nodiscard]] bool is_open(stream_id number) const;
    status enqueue(stream_id number, const operation &added);
    status synchronize(stream_id number);

    // Operations enqueued so far in all lives of the object, and whether that many are done: a point to wait for.
    [[nodiscard]] uint64_t enqueued() const;
    [[nodiscard]] bool reached(uint64_t count) const;

private:
    void run();
    bool take(operation &next);
    void perform(const operation &op) noexcept;

    host_engines &engines_;
    mutable std::mutex mutex_;
    std::condition_variable work_;  // the thread waits here for operations
    std::condition_variable done_;  // synchronize waits here
    operation_ring ring_;
    sanitizer_order order_;
    stream_id number_{0};
    uint64_t enqueued_ = 0;
    uint64_t completed_ = 0;
    uint32_t synchronizing_ = 0;
    bool open_ = false;
    bool asleep_ = false;
    bool busy_ = false;
    std::thread thread_;
};

}  // namespace ebb
