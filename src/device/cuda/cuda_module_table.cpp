#include "device/cuda/cuda_module_table.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string_view>

#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_driver.hpp"

namespace ebb {
namespace {

// A text that is longer is cut: it crosses the border as an array.
constexpr size_t k_text_bytes = 2048;

char *text_of_thread() noexcept {
    thread_local char text[k_text_bytes] = "";
    return text;
}

int32_t failed(code why, std::string_view text) noexcept {
    char *kept = text_of_thread();
    const size_t size = std::min(text.size(), k_text_bytes - 1);
    std::memcpy(kept, text.data(), size);
    kept[size] = '\0';
    return static_cast<int32_t>(why);
}

int32_t answer(const status &done) noexcept {
    return done.ok() ? 0 : failed(done.code(), done.text());
}

// Nothing thrown crosses the border: there may be another C++ library on its other side.
template <class Body>
int32_t guarded(const Body &body) noexcept {
    try {
        return answer(body());
    } catch (const std::exception &e) {
        return failed(code::internal, e.what());
    } catch (...) {
        return failed(code::internal, "unknown exception");
    }
}

// The same for a call that gives a value.
template <class Value, class Body>
int32_t guarded_value(Value *value, const Body &body) noexcept {
    return guarded([&]() -> status {
        auto made = body();
        if (!made.ok()) {
            return made.why();
        }
        *value = static_cast<Value>(made.value());
        return {};
    });
}

cuda_device &of(void *device) noexcept {
    return *static_cast<cuda_device *>(device);
}

int32_t make(const void *context, const module_options *options, void (*note)(void *, const char *), void *note_context,
             void **device, module_device_info *info) noexcept {
    return guarded([&]() -> status {
        cuda_device_options wanted;
        wanted.calibrate = options->calibrate != 0;
        wanted.nvtx = options->nvtx != 0;
        wanted.system_root = options->system_root;
        wanted.prefault_threads = options->prefault_threads;
        result<std::unique_ptr<cuda_device>> made =
            cuda_device::make(*static_cast<const cuda_api *>(context), options->ordinal, wanted);
        if (!made.ok()) {
            return made.why();
        }
        for (const std::string &each : made.value()->notes()) {
            note(note_context, each.c_str());
        }
        const device_info &known = made.value()->info();
        *info = {static_cast<int32_t>(known.type),
                 known.integrated ? 1 : 0,
                 known.captures ? 1 : 0,
                 known.default_chunk_bytes,
                 known.slab_bytes,
                 known.measured_link.d2h_bytes_per_second,
                 known.measured_link.h2d_bytes_per_second,
                 known.measured_link.d2h_beside_h2d_bytes_per_second,
                 known.measured_link.h2d_beside_d2h_bytes_per_second};
        *device = std::move(made).value().release();
        return {};
    });
}

void set_device_calls(device_module &m) noexcept {
    m.alloc_device = [](void *device, uint64_t size_bytes, void **data) noexcept {
        return guarded_value(data, [&] { return of(device).alloc_device(size_bytes); });
    };
    m.free_device = [](void *device, void *data, uint64_t size_bytes) noexcept {
        return guarded([&] { return of(device).free_device(data, size_bytes); });
    };
    m.memory = [](void *device, uint64_t *capacity_bytes, uint64_t *free_bytes) noexcept {
        const device_memory now = of(device).memory();
        *capacity_bytes = now.capacity_bytes;
        *free_bytes = now.free_bytes;
    };
    m.map_host = [](void *device, uint64_t size_bytes, void **data) noexcept {
        return guarded_value(data, [&] { return of(device).map_host(size_bytes); });
    };
    m.unmap_host = [](void *device, void *data, uint64_t size_bytes) noexcept {
        return guarded([&] { return of(device).unmap_host(data, size_bytes); });
    };
    m.host_room_bytes = [](void *device) noexcept { return of(device).host_room_bytes(); };
}

void set_stream_calls(device_module &m) noexcept {
    m.create_stream = [](void *device, int32_t role, uint64_t *stream) noexcept {
        return guarded_value(stream, [&] { return of(device).create_stream(static_cast<stream_role>(role)); });
    };
    m.destroy_stream = [](void *device, uint64_t stream) noexcept {
        return guarded([&] { return of(device).destroy_stream(stream_id{stream}); });
    };
    m.check_stream = [](void *device, uint64_t stream) noexcept {
        return guarded([&] { return of(device).check_stream(stream_id{stream}); });
    };
    m.capture_of = [](void *device, uint64_t stream, uint64_t *capture) noexcept {
        return guarded_value(capture, [&] { return of(device).capture_of(stream_id{stream}); });
    };
}

void set_event_calls(device_module &m) noexcept {
    m.create_event = [](void *device, int32_t kind, uint64_t *event) noexcept {
        return guarded_value(event, [&] { return of(device).create_event(static_cast<event_kind>(kind)); });
    };
    m.destroy_event = [](void *device, uint64_t event) noexcept {
        return guarded([&] { return of(device).destroy_event(event_id{event}); });
    };
    m.record_event = [](void *device, uint64_t event, uint64_t stream) noexcept {
        return guarded([&] { return of(device).record_event(event_id{event}, stream_id{stream}); });
    };
    m.wait_event = [](void *device, uint64_t stream, uint64_t event) noexcept {
        return guarded([&] { return of(device).wait_event(stream_id{stream}, event_id{event}); });
    };
    m.event_done = [](void *device, uint64_t event, int32_t *done) noexcept {
        return guarded_value(done, [&] { return of(device).event_done(event_id{event}); });
    };
    m.synchronize_event = [](void *device, uint64_t event) noexcept {
        return guarded([&] { return of(device).synchronize_event(event_id{event}); });
    };
    m.elapsed_ns = [](void *device, uint64_t start, uint64_t end, uint64_t *ns) noexcept {
        return guarded_value(ns, [&] { return of(device).elapsed_ns(event_id{start}, event_id{end}); });
    };
}

void set_work_calls(device_module &m) noexcept {
    m.copy = [](void *device, uint64_t stream, int32_t direction, void *destination, const void *source,
                uint64_t size_bytes) noexcept {
        return guarded([&] {
            return of(device).copy(stream_id{stream}, static_cast<copy_direction>(direction), destination, source,
                                   size_bytes);
        });
    };
    m.copy_pieces = [](void *device, uint64_t stream, int32_t direction, const void *pieces, uint32_t count) noexcept {
        return guarded([&] {
            return of(device).copy_pieces(stream_id{stream}, static_cast<copy_direction>(direction),
                                          static_cast<const copy_piece *>(pieces), count);
        });
    };
    m.checksum = [](void *device, uint64_t stream, const void *data, uint64_t size_bytes,
                    uint64_t *accumulator) noexcept {
        return guarded([&] { return of(device).checksum(stream_id{stream}, data, size_bytes, accumulator); });
    };
    m.begin_range = [](void *device, const char *what, const char *name, uint64_t size_bytes) noexcept {
        of(device).begin_range(what, name, size_bytes);
    };
    m.end_range = [](void *device) noexcept { of(device).end_range(); };
}

}  // namespace

device_module make_cuda_module_table(const cuda_api &api) {
    device_module m{};
    m.version = k_device_module_version;
    m.last_text = []() noexcept -> const char * { return text_of_thread(); };
    m.context = &api;
    m.probe = [](const void *context, module_driver *found) noexcept {
        return guarded([&] { return probe_driver(*static_cast<const cuda_api *>(context), *found); });
    };
    m.make = &make;
    m.destroy = [](void *device) noexcept { delete static_cast<cuda_device *>(device); };
    set_device_calls(m);
    set_stream_calls(m);
    set_event_calls(m);
    set_work_calls(m);
    return m;
}

}  // namespace ebb
