#include "device/host/host_stream.hpp"

#include <fmt/core.h>
#include <pthread.h>

#include <cstring>
#include <system_error>

namespace ebb {
namespace {

const char *thread_name(stream_role role) noexcept {
    switch (role) {
        case stream_role::compute:
            return "ebb-compute";
        case stream_role::d2h:
            return "ebb-d2h";
        case stream_role::h2d:
            return "ebb-h2d";
        case stream_role::join:
            return "ebb-join";
    }
    return "ebb-stream";
}

}  // namespace

status host_stream::start(stream_id number, stream_role role) {
    const std::lock_guard lock(mutex_);
    number_ = number;
    open_ = true;
    try {
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error &error) {
        open_ = false;
        return {code::device_error,
                fmt::format("create_stream: the system refused a thread ({}); every stream of the host device is one, "
                            "so destroy streams or raise the limit of processes (ulimit -u)",
                            error.what())};
    }
    pthread_setname_np(thread_.native_handle(), thread_name(role));
    return {};
}

bool host_stream::close(stream_id number) {
    const std::lock_guard lock(mutex_);
    if (!open_ || number_ != number) {
        return false;
    }
    open_ = false;
    work_.notify_one();
    return true;
}

void host_stream::close() {
    const std::lock_guard lock(mutex_);
    open_ = false;
    work_.notify_one();
}

void host_stream::finish() {
    close();
    if (thread_.joinable()) {
        thread_.join();
    }
}

bool host_stream::is_open(stream_id number) const {
    const unordered_section section;
    const std::lock_guard lock(mutex_);
    return open_ && number_ == number;
}

status no_such_stream(stream_id number) {
    return {code::invalid_argument, fmt::format("stream {}: no stream of this host device has that number; it was "
                                                "destroyed, or comes from another device",
                                                static_cast<uint64_t>(number))};
}

status host_stream::enqueue(stream_id number, const operation &added) {
    bool wake = false;
    {
        const unordered_section section;
        const std::lock_guard lock(mutex_);
        if (!open_ || number_ != number) {
            return no_such_stream(number);
        }
        ring_.push(added);
        ++enqueued_;
        order_.enqueue();
        wake = asleep_;
        asleep_ = false;
    }
    if (wake) {
        work_.notify_one();
    }
    return {};
}

status host_stream::synchronize(stream_id number) {
    const unordered_section section;
    std::unique_lock lock(mutex_);
    if (!open_ || number_ != number) {
        return no_such_stream(number);
    }
    if (std::this_thread::get_id() == thread_.get_id()) {
        return {code::wrong_state,
                fmt::format("stream {}: a function launched on it cannot wait for it", static_cast<uint64_t>(number))};
    }
    const uint64_t until = enqueued_;
    ++synchronizing_;
    done_.wait(lock, [&] { return completed_ >= until; });
    --synchronizing_;
    order_.waited();
    return {};
}

uint64_t host_stream::enqueued() const {
    const unordered_section section;
    const std::lock_guard lock(mutex_);
    return enqueued_;
}

bool host_stream::reached(uint64_t count) const {
    const unordered_section section;
    const std::lock_guard lock(mutex_);
    if (completed_ < count) {
        return false;
    }
    order_.waited();
    return true;
}

void host_stream::run() {
    operation next;
    while (take(next)) {
        perform(next);
    }
}

// Also books the operation before as done, so that each costs one lock.
bool host_stream::take(operation &next) {
    order_.done();
    const unordered_section section;
    std::unique_lock lock(mutex_);
    if (busy_) {
        busy_ = false;
        ++completed_;
        if (synchronizing_ > 0) {
            done_.notify_all();
        }
    }
    while (ring_.empty()) {
        if (!open_) {
            return false;
        }
        asleep_ = true;
        work_.wait(lock);
    }
    asleep_ = false;
    next = ring_.pop();
    order_.take();
    busy_ = true;
    return true;
}

void host_engines::copy(copy_direction direction, void *destination, const void *source, uint64_t size_bytes) noexcept {
    if (direction == copy_direction::d2d) {
        std::memcpy(destination, source, size_bytes);
    } else {
        (direction == copy_direction::d2h ? d2h : h2d).copy(destination, source, size_bytes);
    }
}

void host_stream::perform(const operation &op) noexcept {
    switch (op.kind) {
        case operation_kind::launch:
            op.function(op.target);
            return;
        case operation_kind::record:
            op.point->pass();
            engines_.markers.release(op.point);
            return;
        case operation_kind::wait:
            op.point->wait();
            engines_.markers.release(op.point);
            return;
        case operation_kind::copy:
            engines_.copy(op.direction, op.target, op.source, op.size_bytes);
            return;
        case operation_kind::checksum: {
            auto *accumulator = static_cast<uint64_t *>(op.target);
            *accumulator = checksum_bytes(*accumulator, op.source, op.size_bytes);
            return;
        }
    }
}

}  // namespace ebb
