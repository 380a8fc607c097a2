// The kinds of device calls, for what counts, records or refuses them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ebb {

enum class call_kind : uint8_t {
    alloc_device,
    free_device,
    map_host,
    unmap_host,
    create_stream,
    destroy_stream,
    create_event,
    destroy_event,
    record_event,
    wait_event,
    event_done,
    synchronize_event,
    elapsed,
    copy,
    checksum,
};

constexpr size_t k_call_kinds = static_cast<size_t>(call_kind::checksum) + 1;

[[nodiscard]] const char *call_kind_name(call_kind kind) noexcept;

}  // namespace ebb
