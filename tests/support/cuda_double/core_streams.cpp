// Streams: by handle, the default ones, and the orders between them.
#include <fmt/core.h>

#include "base/check.hpp"
#include "cuda_double/double_core.hpp"

namespace ebb::test {
namespace {

constexpr uint64_t k_first_stream_handle = 0x5100'0000'0000;
constexpr uint64_t k_handle_bytes = 64;

// Never the address of anything, and never used again.
cudaStream_t stream_handle(uint32_t number) {
    return reinterpret_cast<cudaStream_t>(k_first_stream_handle + number * k_handle_bytes);
}

}  // namespace

// ------------------------------------------------------------------------------------------- which stream --

double_stream *double_core::add_stream(int ordinal, stream_kind kind, cuda_caller owner) {
    forget_idle_streams();
    auto made = std::make_unique<double_stream>();
    made->number = next_stream_++;
    made->handle = stream_handle(made->number);
    made->device = ordinal;
    made->kind = kind;
    made->owner = owner;
    made->thread = std::make_unique<host_stream>(engines_);
    if (!made->thread->start(made->id(), stream_role::compute).ok()) {
        return nullptr;
    }
    return (streams_[made->number] = std::move(made)).get();
}

// Destroyed ones that have done their work: each is a thread.
void double_core::forget_idle_streams() {
    for (auto each = streams_.begin(); each != streams_.end();) {
        each = each->second->destroyed && each->second->idle() ? streams_.erase(each) : std::next(each);
    }
}

double_stream &double_core::default_stream(std::map<std::pair<uint64_t, int>, double_stream *> &streams, uint64_t key,
                                           int ordinal, stream_kind kind) {
    double_stream *&found = streams[{key, ordinal}];
    if (found == nullptr) {
        found = add_stream(ordinal, kind, cuda_caller::user);
        EBB_CHECK(found != nullptr);
    }
    return *found;
}

double_stream *double_core::find_stream(call &c, cudaStream_t handle) {
    const int ordinal = c.thread.current();
    if (handle == nullptr || handle == cudaStreamLegacy) {
        return &default_stream(legacy_, 0, ordinal, stream_kind::legacy);
    }
    if (handle == cudaStreamPerThread) {
        return &default_stream(per_thread_, c.thread.number, ordinal, stream_kind::per_thread);
    }
    const auto found = stream_handles_.find(handle);
    return found == stream_handles_.end() ? nullptr : found->second;
}

cudaError_t double_core::no_stream(const call &c, cudaStream_t handle) {
    return misused(c, cuda_rule::handles_are_alive,
                   fmt::format("{} is no stream, or was destroyed", static_cast<const void *>(handle)),
                   cudaErrorInvalidResourceHandle);
}

cudaError_t double_core::stream_for_work(call &c, cudaStream_t handle, double_stream **stream) {
    *stream = find_stream(c, handle);
    if (*stream == nullptr) {
        return no_stream(c, handle);
    }
    if ((*stream)->kind == stream_kind::legacy) {
        return check_legacy(c, (*stream)->device, true);
    }
    const auto &capture = (*stream)->capture;
    return capture != nullptr && capture->spoilt ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

// ------------------------------------------------------------------------------------------------- orders --

void double_core::order(double_stream &later, double_stream &earlier) {
    wait_for(later, mark(earlier, engines_.markers));
    later.behind.merge(earlier.behind);
}

void double_core::order_with_legacy(double_stream &stream) {
    const auto behind = [&](const double_stream &other) { return stream.behind.of(other.number) >= other.enqueued; };
    if (stream.kind == stream_kind::legacy) {
        for (const auto &[number, other] : streams_) {
            if (other->device == stream.device && other->blocks_with_legacy() && !behind(*other)) {
                order(stream, *other);
            }
        }
    } else if (stream.blocks_with_legacy()) {
        const auto legacy = legacy_.find({0, stream.device});
        if (legacy != legacy_.end() && !behind(*legacy->second)) {
            order(stream, *legacy->second);
        }
    }
}

// Whoever asks the legacy stream asks the blocking streams too; no other stream is given anything by being asked.
void double_core::bring_in_blocking(double_stream &asked) {
    if (asked.kind == stream_kind::legacy) {
        order_with_legacy(asked);
    }
}

// Without the lock meanwhile; the work that was enqueued by then is seen to be over.
cudaError_t double_core::wait_on_host(call &c, double_stream &stream) {
    marker *point = mark(stream, engines_.markers);
    const progress_clock behind = stream.behind;
    const int ordinal = stream.device;
    c.lock.unlock();
    point->wait();
    c.lock.lock();
    engines_.markers.release(point);
    known_.merge(behind);
    return device(ordinal).life.error();
}

// -------------------------------------------------------------------------------------------------- calls --

cudaError_t double_core::stream_create(call &c, cudaStream_t *stream, unsigned flags) {
    if (const cudaError_t error = check_safe(c); error != cudaSuccess) {
        return error;
    }
    if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking) {
        return cudaErrorInvalidValue;
    }
    double_stream *made =
        add_stream(c.thread.current(),
                   flags == cudaStreamNonBlocking ? stream_kind::non_blocking : stream_kind::blocking, c.caller);
    if (made == nullptr) {
        return cudaErrorMemoryAllocation;
    }
    stream_handles_[made->handle] = made;
    *stream = made->handle;
    return cudaSuccess;
}

cudaError_t double_core::stream_destroy(call &c, cudaStream_t stream) {
    const auto found = stream_handles_.find(stream);
    if (found == stream_handles_.end()) {
        return no_stream(c, stream);
    }
    double_stream &gone = *found->second;
    if (gone.capture != nullptr) {
        return spoil(c, *gone.capture, cuda_rule::capturing_stream_is_not_destroyed,
                     fmt::format("stream {} is part of a capture", gone.number), cudaErrorStreamCaptureUnsupported);
    }
    gone.destroyed = true;
    stream_handles_.erase(found);
    return cudaSuccess;
}

cudaError_t double_core::stream_query(call &c, cudaStream_t stream) {
    double_stream *asked = find_stream(c, stream);
    if (asked == nullptr) {
        return no_stream(c, stream);
    }
    if (const cudaError_t error = check_stream_asked(c, *asked); error != cudaSuccess) {
        return error;
    }
    bring_in_blocking(*asked);
    if (!asked->idle()) {
        return cudaErrorNotReady;
    }
    known_.merge(asked->behind);
    return cudaSuccess;
}

cudaError_t double_core::stream_synchronize(call &c, cudaStream_t stream) {
    double_stream *asked = find_stream(c, stream);
    if (asked == nullptr) {
        return no_stream(c, stream);
    }
    if (const cudaError_t error = check_stream_asked(c, *asked); error != cudaSuccess) {
        return error;
    }
    bring_in_blocking(*asked);
    return wait_on_host(c, *asked);
}

cudaError_t double_core::device_synchronize(call &c) {
    const int ordinal = c.thread.current();
    if (const cudaError_t error = check_device_not_capturing(c, ordinal); error != cudaSuccess) {
        return error;
    }
    if (const cudaError_t error = check_safe(c); error != cudaSuccess) {
        return error;
    }
    std::vector<std::pair<marker *, progress_clock>> points;
    for (const auto &[number, stream] : streams_) {
        if (stream->device == ordinal) {
            points.emplace_back(mark(*stream, engines_.markers), stream->behind);
        }
    }
    c.lock.unlock();
    for (const auto &[point, behind] : points) {
        point->wait();
    }
    c.lock.lock();
    for (const auto &[point, behind] : points) {
        engines_.markers.release(point);
        known_.merge(behind);
    }
    return device(ordinal).life.error();
}

cudaError_t double_core::stream_wait_event(call &c, cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    double_event *awaited = find_event(event);
    if (awaited == nullptr) {
        return no_event(c, event);
    }
    double_stream *waiting = nullptr;
    if (const cudaError_t error = stream_for_work(c, stream, &waiting); error != cudaSuccess) {
        return error;
    }
    if (flags != cudaEventWaitDefault) {
        return cudaErrorNotSupported;
    }
    if (waiting->capture != nullptr || awaited->capture != nullptr) {
        return wait_in_capture(c, *waiting, *awaited);
    }
    if (awaited->point == nullptr) {
        return misused(c, cuda_rule::wait_needs_a_record, fmt::format("stream {} waits for nothing", waiting->number),
                       cudaSuccess);
    }
    order_with_legacy(*waiting);
    marker_pool::hold(awaited->point);
    wait_for(*waiting, awaited->point);
    waiting->behind.merge(awaited->behind);
    waiting->count_work();
    return cudaSuccess;
}

}  // namespace ebb::test
