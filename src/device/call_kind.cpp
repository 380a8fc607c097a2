#include "device/call_kind.hpp"

#include <array>

namespace ebb {

const char *call_kind_name(call_kind kind) noexcept {
    static constexpr std::array<const char *, k_call_kinds> k_names{
        "alloc_device",   "free_device",       "map_host",      "unmap_host",   "create_stream",
        "destroy_stream", "create_event",      "destroy_event", "record_event", "wait_event",
        "event_done",     "synchronize_event", "elapsed",       "copy",         "checksum",
    };
    const auto index = static_cast<size_t>(kind);
    return index < k_names.size() ? k_names[index] : "unknown call";
}

}  // namespace ebb
