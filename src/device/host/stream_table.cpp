#include "device/host/stream_table.hpp"

#include <fmt/core.h>

#include "device/handle_number.hpp"

namespace ebb {
namespace {

constexpr stream_id k_legacy_stream{1};
constexpr stream_id k_per_thread_stream{2};

// Numbers that mean something elsewhere deserve their own explanation.
status check_reserved(stream_id stream) {
    const auto refused = [&](const char *what) {
        return status{code::invalid_argument,
                      fmt::format("stream {}: {}; use 0, its default stream, or a stream created on it",
                                  static_cast<uint64_t>(stream), what)};
    };
    if (stream == k_legacy_stream) {
        return refused("CUDA's legacy default stream, which the host device does not have");
    }
    if (stream == k_per_thread_stream) {
        return refused("CUDA's per-thread default stream, which the host device does not have");
    }
    if (stream == k_calling_thread) {
        return refused("the calling thread, which is no stream of the host device");
    }
    return {};
}

}  // namespace

void stream_table::finish() {
    // All are closed before one is waited for: none takes new work while the others drain.
    for (const auto &stream : streams_) {
        stream->close();
    }
    if (default_owner_ != nullptr) {
        default_owner_->finish();
    }
    for (const auto &stream : streams_) {
        stream->finish();
    }
}

result<stream_id> stream_table::create(stream_role role) {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
        if (streams_.size() == k_max_streams) {
            return status{code::device_error,
                          fmt::format("create_stream: {} streams are alive, the most a host device has, since each is "
                                      "a thread; destroy streams that are no longer used",
                                      k_max_streams)};
        }
        streams_.push_back(std::make_unique<host_stream>(engines_));
        free_.push_back(static_cast<uint32_t>(streams_.size() - 1));
        lookup_[streams_.size() - 1].store(streams_.back().get(), std::memory_order_release);
    }
    const uint32_t index = free_.back();
    const stream_id number{new_handle_number(index)};
    EBB_TRY(streams_[index]->start(number, role));
    free_.pop_back();
    return number;
}

status stream_table::destroy(stream_id stream) {
    if (stream == k_default_stream) {
        return {code::invalid_argument,
                "destroy_stream: stream 0 is the default stream and lives as long as the device"};
    }
    EBB_TRY(check_reserved(stream));
    host_stream *found = at(stream);
    if (found == nullptr || !found->close(stream)) {
        return no_such_stream(stream);
    }
    found->finish();
    const std::lock_guard lock(mutex_);
    free_.push_back(handle_index(static_cast<uint64_t>(stream)));
    return {};
}

status stream_table::check(stream_id stream) const {
    if (stream == k_default_stream) {
        return {};
    }
    EBB_TRY(check_reserved(stream));
    const host_stream *found = at(stream);
    return found != nullptr && found->is_open(stream) ? status{} : no_such_stream(stream);
}

result<host_stream *> stream_table::find(stream_id stream) {
    if (stream == k_default_stream) {
        return default_stream();
    }
    EBB_TRY(check_reserved(stream));
    if (host_stream *found = at(stream); found != nullptr) {
        return found;
    }
    return no_such_stream(stream);
}

host_stream *stream_table::at(stream_id stream) const noexcept {
    const uint32_t index = handle_index(static_cast<uint64_t>(stream));
    return index < k_max_streams ? lookup_[index].load(std::memory_order_acquire) : nullptr;
}

result<host_stream *> stream_table::default_stream() {
    if (host_stream *made = default_.load(std::memory_order_acquire); made != nullptr) {
        return made;
    }
    const std::lock_guard lock(mutex_);
    if (default_owner_ == nullptr) {
        auto made = std::make_unique<host_stream>(engines_);
        EBB_TRY(made->start(k_default_stream, stream_role::compute));
        default_owner_ = std::move(made);
        default_.store(default_owner_.get(), std::memory_order_release);
    }
    return default_owner_.get();
}

std::vector<stream_point> stream_table::points() const {
    const std::lock_guard lock(mutex_);
    std::vector<stream_point> points;
    points.reserve(streams_.size() + 1);
    for (const auto &stream : streams_) {
        points.push_back({stream.get(), stream->enqueued()});
    }
    if (default_owner_ != nullptr) {
        points.push_back({default_owner_.get(), default_owner_->enqueued()});
    }
    return points;
}

}  // namespace ebb
