// Captures: what they forbid and to whom, and how streams get into them and out.
#include <fmt/core.h>

#include <algorithm>

#include "cuda_double/double_core.hpp"

namespace ebb::test {

// --------------------------------------------------------------------------------------- what is forbidden --

cudaError_t double_core::spoil(const call &c, graph_capture &capture, cuda_rule rule, const std::string &text,
                               cudaError_t error) {
    capture.spoilt = capture.spoilt || !capture.over;
    return misused(c, rule, text, error);
}

bool double_core::forbids(const graph_capture &capture, const cuda_thread &thread) {
    if (thread.mode == cudaStreamCaptureModeRelaxed) {
        return false;
    }
    if (capture.thread == thread.number) {
        return capture.mode != cudaStreamCaptureModeRelaxed;
    }
    return thread.mode == cudaStreamCaptureModeGlobal && capture.mode == cudaStreamCaptureModeGlobal;
}

// For every call that may be unsafe beside a capture: not enqueued, it would not be seen by it.
cudaError_t double_core::check_safe(call &c) {
    cudaError_t answer = cudaSuccess;
    for (const auto &capture : captures_) {
        if (forbids(*capture, c.thread)) {
            const bool own = capture->thread == c.thread.number;
            answer = spoil(c, *capture,
                           own ? cuda_rule::unsafe_call_in_own_capture : cuda_rule::unsafe_call_beside_a_global_capture,
                           fmt::format("capture {} forbids it", capture->id), cudaErrorStreamCaptureUnsupported);
        }
    }
    return answer;
}

cudaError_t double_core::check_legacy(call &c, int ordinal, bool spoils) {
    for (const auto &capture : captures_) {
        for (const double_stream *member : capture->members) {
            if (member->device == ordinal && member->blocks_with_legacy()) {
                if (!spoils) {
                    return cudaErrorStreamCaptureImplicit;
                }
                return spoil(c, *capture, cuda_rule::no_legacy_beside_a_blocking_capture,
                             fmt::format("stream {} is in capture {}", member->number, capture->id),
                             cudaErrorStreamCaptureImplicit);
            }
        }
    }
    return cudaSuccess;
}

cudaError_t double_core::check_device_not_capturing(call &c, int ordinal) {
    for (const auto &capture : captures_) {
        for (const double_stream *member : capture->members) {
            if (member->device == ordinal) {
                return spoil(
                    c, *capture, cuda_rule::capturing_stream_is_not_asked,
                    fmt::format("stream {} of device {} is in capture {}", member->number, ordinal, capture->id),
                    cudaErrorStreamCaptureUnsupported);
            }
        }
    }
    return cudaSuccess;
}

cudaError_t double_core::check_stream_asked(call &c, double_stream &stream) {
    if (stream.capture != nullptr) {
        return spoil(c, *stream.capture, cuda_rule::capturing_stream_is_not_asked,
                     fmt::format("stream {} is in capture {}", stream.number, stream.capture->id),
                     cudaErrorStreamCaptureUnsupported);
    }
    if (stream.kind == stream_kind::legacy) {
        if (const cudaError_t error = check_legacy(c, stream.device, true); error != cudaSuccess) {
            return error;
        }
    }
    return check_safe(c);
}

// ------------------------------------------------------------------------------------------ waits and captures --

// The stream, the event or both are of a capture.
cudaError_t double_core::wait_in_capture(call &c, double_stream &stream, double_event &event) {
    if (event.capture == nullptr) {
        return spoil(c, *stream.capture, cuda_rule::capture_is_isolated,
                     fmt::format("stream {} is in capture {} and the event is not", stream.number, stream.capture->id),
                     cudaErrorStreamCaptureIsolation);
    }
    if (event.capture->over) {
        if (stream.capture != nullptr) {
            stream.capture->spoilt = true;
        }
        return misused(c, cuda_rule::capture_is_over_at_its_end,
                       fmt::format("the event was recorded in capture {}, which has ended", event.capture->id),
                       cudaErrorCapturedEvent);
    }
    if (event.capture->spoilt) {
        return stream.capture == nullptr ? cudaErrorInvalidValue : cudaErrorStreamCaptureInvalidated;
    }
    if (stream.capture != nullptr && stream.capture != event.capture) {
        stream.capture->spoilt = true;
        return spoil(c, *event.capture, cuda_rule::captures_do_not_merge,
                     fmt::format("stream {} is in capture {}, the event in {}", stream.number, stream.capture->id,
                                 event.capture->id),
                     cudaErrorStreamCaptureMerge);
    }
    if (stream.kind == stream_kind::legacy) {
        return spoil(c, *event.capture, cuda_rule::capture_begins_once, "the legacy default stream would be captured",
                     cudaErrorStreamCaptureUnsupported);
    }
    if (stream.capture == nullptr) {
        event.capture->join(event.capture, stream, event.nodes);
    } else {
        stream.frontier.insert(event.nodes.begin(), event.nodes.end());
    }
    return cudaSuccess;
}

// -------------------------------------------------------------------------------------------------- calls --

cudaError_t double_core::exchange_capture_mode(call &c, cudaStreamCaptureMode *mode) {
    std::swap(c.thread.mode, *mode);
    return cudaSuccess;
}

cudaError_t double_core::begin_capture(call &c, cudaStream_t stream, cudaStreamCaptureMode mode) {
    double_stream *origin = find_stream(c, stream);
    if (origin == nullptr) {
        return no_stream(c, stream);
    }
    if (origin->kind == stream_kind::legacy) {
        return misused(c, cuda_rule::capture_begins_once, "the legacy default stream cannot be captured",
                       cudaErrorStreamCaptureUnsupported);
    }
    if (origin->capture != nullptr) {
        return misused(c, cuda_rule::capture_begins_once,
                       fmt::format("stream {} is in capture {}", origin->number, origin->capture->id),
                       cudaErrorIllegalState);
    }
    auto capture = std::make_shared<graph_capture>();
    capture->id = next_capture_++;
    capture->mode = mode;
    capture->origin = origin;
    capture->thread = c.thread.number;
    capture->members.push_back(origin);
    origin->capture = capture;
    captures_.push_back(std::move(capture));
    return cudaSuccess;
}

cudaError_t double_core::end_capture(call &c, cudaStream_t stream, cudaGraph_t *graph) {
    *graph = nullptr;
    double_stream *origin = find_stream(c, stream);
    if (origin == nullptr) {
        return no_stream(c, stream);
    }
    if (origin->capture == nullptr) {
        return misused(c, cuda_rule::capture_ends_where_it_began, "the stream is in no capture", cudaErrorIllegalState);
    }
    const std::shared_ptr<graph_capture> capture = origin->capture;
    if (capture->origin != origin) {
        return spoil(c, *capture, cuda_rule::capture_ends_where_it_began,
                     fmt::format("capture {} began on another stream", capture->id), cudaErrorStreamCaptureUnmatched);
    }
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != c.thread.number) {
        return misused(c, cuda_rule::capture_ends_where_it_began,
                       fmt::format("capture {} began on another thread", capture->id),
                       cudaErrorStreamCaptureWrongThread);
    }
    const double_stream *unjoined = capture->spoilt ? nullptr : capture->unjoined();
    capture->end();
    captures_.erase(std::find(captures_.begin(), captures_.end(), capture));
    if (capture->spoilt) {
        return cudaErrorStreamCaptureInvalidated;
    }
    if (unjoined != nullptr) {
        return misused(c, cuda_rule::forks_are_joined,
                       fmt::format("stream {} was not joined to capture {}", unjoined->number, capture->id),
                       cudaErrorStreamCaptureUnjoined);
    }
    if (const std::optional<std::string> unordered = find_unordered(capture->nodes)) {
        (void)misused(c, cuda_rule::shared_memory_is_ordered, *unordered, cudaSuccess);
    }
    auto made = std::make_shared<double_graph>();
    made->nodes = std::move(capture->nodes);
    *graph = reinterpret_cast<cudaGraph_t>(next_handle_++);
    graphs_[*graph] = std::move(made);
    return cudaSuccess;
}

cudaError_t double_core::capture_info(call &c, cudaStream_t stream, cudaStreamCaptureStatus *status,
                                      unsigned long long *id) {
    double_stream *asked = find_stream(c, stream);
    if (asked == nullptr) {
        return no_stream(c, stream);
    }
    if (asked->kind == stream_kind::legacy) {
        if (const cudaError_t error = check_legacy(c, asked->device, false); error != cudaSuccess) {
            return error;
        }
    }
    *status = asked->capture == nullptr ? cudaStreamCaptureStatusNone
              : asked->capture->spoilt  ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
    if (id != nullptr) {
        *id = *status == cudaStreamCaptureStatusActive ? asked->capture->id : 0;
    }
    return cudaSuccess;
}

}  // namespace ebb::test
