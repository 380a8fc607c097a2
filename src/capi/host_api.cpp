// Exported: streams, memory and launches of the host device.

#include <fmt/format.h>

#include "capi/session.hpp"

using namespace ebb;        // NOLINT(google-build-using-namespace): this file is the C ABI of that namespace
using namespace ebb::capi;  // NOLINT(google-build-using-namespace)

namespace {

// The host device takes calls from any thread, so these do not take the runtime's lock: a launch does not wait
// for another thread's offload.
template <class Body>
ebb_status on_host(ebb_runtime *r, Body &&body) noexcept {
    return guarded([&]() -> status {
        if (r == nullptr) {
            return {code::invalid_argument, "runtime is null"};
        }
        if (r->host == nullptr) {
            return {code::unsupported,
                    fmt::format("this is for the host device, the runtime's is '{}', on which no function of the "
                                "caller's can run and no memory can be touched; create the runtime with device "
                                "\"host\"",
                                r->device->info().name)};
        }
        return body(*r->host);
    });
}

}  // namespace

ebb_status ebb_host_stream_create(ebb_runtime *runtime, ebb_stream *stream) {
    return on_host(runtime, [&](host_device &host) -> status {
        if (stream == nullptr) {
            return {code::invalid_argument, "stream is null: it is where the stream is written"};
        }
        result<stream_id> made = host.create_stream(stream_role::compute);
        if (!made.ok()) {
            return made.why();
        }
        *stream = static_cast<ebb_stream>(made.value());
        return {};
    });
}

ebb_status ebb_host_stream_destroy(ebb_runtime *runtime, ebb_stream stream) {
    return on_host(runtime, [&](host_device &host) { return host.destroy_stream(stream_id{stream}); });
}

ebb_status ebb_host_stream_synchronize(ebb_runtime *runtime, ebb_stream stream) {
    return on_host(runtime, [&](host_device &host) { return host.synchronize_stream(stream_id{stream}); });
}

ebb_status ebb_host_launch(ebb_runtime *runtime, ebb_stream stream, void (*function)(void *argument), void *argument) {
    return on_host(runtime, [&](host_device &host) -> status {
        if (function == nullptr) {
            return {code::invalid_argument, "function is null"};
        }
        return host.launch(stream_id{stream}, function, argument);
    });
}

ebb_status ebb_host_alloc(ebb_runtime *runtime, uint64_t size_bytes, void **data) {
    return on_host(runtime, [&](host_device &host) -> status {
        if (data == nullptr) {
            return {code::invalid_argument, "data is null: it is where the address is written"};
        }
        result<void *> made = host.alloc_for_caller(size_bytes);
        if (!made.ok()) {
            return made.why();
        }
        *data = made.value();
        return {};
    });
}

ebb_status ebb_host_free(ebb_runtime *runtime, void *data) {
    return on_host(runtime, [&](host_device &host) { return data == nullptr ? status() : host.free_device(data); });
}

ebb_status ebb_host_memory(ebb_runtime *runtime, uint64_t *capacity_bytes, uint64_t *used_bytes, uint64_t *peak_bytes) {
    return on_host(runtime, [&](host_device &host) -> status {
        const device_arena_statistics s = host.statistics().arena;
        if (capacity_bytes != nullptr) {
            *capacity_bytes = s.capacity_bytes;
        }
        if (used_bytes != nullptr) {
            *used_bytes = s.used_bytes;
        }
        if (peak_bytes != nullptr) {
            *peak_bytes = s.peak_bytes;
        }
        return {};
    });
}
