// Events: a record is a point on a stream, or a set of nodes of a capture.
#include <fmt/core.h>

#include "cuda_double/double_core.hpp"

namespace ebb::test {
namespace {

constexpr uint64_t k_first_event_handle = 0x5200'0000'0000;
constexpr uint64_t k_handle_bytes = 64;

}  // namespace

double_event *double_core::find_event(cudaEvent_t handle) {
    const auto found = events_.find(handle);
    return found == events_.end() ? nullptr : &found->second;
}

cudaError_t double_core::no_event(const call &c, cudaEvent_t handle) {
    return misused(c, cuda_rule::handles_are_alive,
                   fmt::format("{} is no event, or was destroyed", static_cast<const void *>(handle)),
                   cudaErrorInvalidResourceHandle);
}

cudaError_t double_core::event_create(call &c, cudaEvent_t *event, unsigned flags) {
    constexpr unsigned k_known = cudaEventBlockingSync | cudaEventDisableTiming;
    if ((flags & ~k_known) != 0) {
        return cudaErrorInvalidValue;
    }
    *event = reinterpret_cast<cudaEvent_t>(k_first_event_handle + next_handle_++ * k_handle_bytes);
    double_event &made = events_[*event];
    made.device = c.thread.current();
    made.flags = flags;
    made.owner = c.caller;
    return cudaSuccess;
}

cudaError_t double_core::event_destroy(call &c, cudaEvent_t event) {
    double_event *gone = find_event(event);
    if (gone == nullptr) {
        return no_event(c, event);
    }
    if (gone->point != nullptr) {
        engines_.markers.release(gone->point);
    }
    events_.erase(event);
    return cudaSuccess;
}

cudaError_t double_core::event_record(call &c, cudaEvent_t event, cudaStream_t stream) {
    double_event *recorded = find_event(event);
    if (recorded == nullptr) {
        return no_event(c, event);
    }
    double_stream *on = nullptr;
    if (const cudaError_t error = stream_for_work(c, stream, &on); error != cudaSuccess) {
        return error;
    }
    if (recorded->device != on->device) {
        return misused(
            c, cuda_rule::event_on_the_streams_device,
            fmt::format("the event is of device {}, stream {} of device {}", recorded->device, on->number, on->device),
            cudaErrorInvalidResourceHandle);
    }
    if (recorded->point != nullptr) {
        engines_.markers.release(recorded->point);
    }
    recorded->point = nullptr;
    recorded->capture = on->capture;
    recorded->nodes = on->frontier;
    if (on->capture == nullptr) {
        order_with_legacy(*on);
        const bool timed = (recorded->flags & cudaEventDisableTiming) == 0;
        recorded->point = mark(*on, engines_.markers, timed ? event_kind::timed : event_kind::plain);
        recorded->behind = on->behind;
    }
    return cudaSuccess;
}

// What the host asks of an event must not be part of a graph, and the thread must be allowed to ask.
cudaError_t double_core::check_asked_event(call &c, cudaEvent_t handle, double_event **event) {
    *event = find_event(handle);
    if (*event == nullptr) {
        return no_event(c, handle);
    }
    if ((*event)->capture != nullptr) {
        return spoil(c, *(*event)->capture, cuda_rule::captured_event_is_not_asked,
                     "the event was last recorded in a capture", cudaErrorCapturedEvent);
    }
    return check_safe(c);
}

cudaError_t double_core::event_query(call &c, cudaEvent_t event) {
    double_event *asked = nullptr;
    if (const cudaError_t error = check_asked_event(c, event, &asked); error != cudaSuccess) {
        return error;
    }
    if (asked->point != nullptr && !asked->point->passed()) {
        return cudaErrorNotReady;
    }
    known_.merge(asked->behind);
    return cudaSuccess;
}

cudaError_t double_core::event_synchronize(call &c, cudaEvent_t event) {
    double_event *asked = nullptr;
    if (const cudaError_t error = check_asked_event(c, event, &asked); error != cudaSuccess) {
        return error;
    }
    if (asked->point == nullptr) {
        return cudaSuccess;
    }
    marker *point = asked->point;
    const progress_clock behind = asked->behind;
    const int ordinal = asked->device;
    marker_pool::hold(point);
    c.lock.unlock();
    point->wait();
    c.lock.lock();
    engines_.markers.release(point);
    known_.merge(behind);
    return device(ordinal).life.error();
}

cudaError_t double_core::event_elapsed_time(call &c, float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    double_event *from = nullptr;
    double_event *until = nullptr;
    if (const cudaError_t error = check_asked_event(c, start, &from); error != cudaSuccess) {
        return error;
    }
    if (const cudaError_t error = check_asked_event(c, end, &until); error != cudaSuccess) {
        return error;
    }
    for (const double_event *each : {from, until}) {
        if ((each->flags & cudaEventDisableTiming) != 0 || each->point == nullptr || from->device != until->device) {
            return misused(c, cuda_rule::elapsed_needs_timing,
                           "one of the events takes no times, was never recorded or is another device's",
                           cudaErrorInvalidResourceHandle);
        }
    }
    if (!from->point->passed() || !until->point->passed()) {
        return cudaErrorNotReady;
    }
    constexpr double k_ns_per_ms = 1e6;
    const auto ns = static_cast<double>(until->point->time_ns()) - static_cast<double>(from->point->time_ns());
    *milliseconds = static_cast<float>(ns / k_ns_per_ms);
    return cudaSuccess;
}

}  // namespace ebb::test
