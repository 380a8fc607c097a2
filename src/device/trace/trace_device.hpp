// Writes down every call that a device is given, in order, in a form that two runs can be compared in: streams and
// events by order of appearance, addresses as an offset in the n-th allocation.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/call_kind.hpp"
#include "device/decorator.hpp"

namespace ebb {

// region 0: null. Memory that did not come from the device has regions of its own, by first appearance.
struct trace_place {
    uint32_t region = 0;
    bool from_device = false;  // alloc_device or map_host gave it out
    uint64_t offset_bytes = 0;
    bool operator==(const trace_place &) const = default;
};

struct trace_entry {
    call_kind kind = call_kind::copy;
    code result = code::ok;
    uint32_t stream = 0;  // 1 for the first one seen, and so on; 0: the call has none
    uint32_t event = 0;
    copy_direction direction = copy_direction::d2d;  // copy
    trace_place destination;                         // copy; checksum: none
    trace_place source;                              // copy, checksum; the memory of alloc, free, map, unmap
    uint64_t size_bytes = 0;
    bool operator==(const trace_entry &) const = default;
};

// "copy EBB_OK stream 2 d2h block 1+4096 <- block 3+0, 16777216 bytes"
[[nodiscard]] std::string to_string(const trace_entry &entry);

class trace_device : public device_decorator {
public:
    explicit trace_device(device &inner) : device_decorator(inner) {}

    // On at first. Numbers of streams, events and regions go on while it is off.
    void record(bool on);
    void clear();
    [[nodiscard]] std::vector<trace_entry> entries() const;
    // Those of one kind only: "the same copies in the same order" is entries(call_kind::copy) of both.
    [[nodiscard]] std::vector<trace_entry> entries(call_kind kind) const;

    result<void *> alloc_device(uint64_t size_bytes) override;
    status free_device(void *data, uint64_t size_bytes) override;
    result<void *> map_host(uint64_t size_bytes) override;
    status unmap_host(void *data, uint64_t size_bytes) override;
    result<stream_id> create_stream(stream_role role) override;
    status destroy_stream(stream_id stream) override;
    result<event_id> create_event(event_kind kind) override;
    status destroy_event(event_id event) override;
    status record_event(event_id event, stream_id stream) override;
    status wait_event(stream_id stream, event_id event) override;
    result<bool> event_done(event_id event) override;
    status synchronize_event(event_id event) override;
    result<uint64_t> elapsed_ns(event_id start, event_id end) override;
    status copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                uint64_t size_bytes) override;
    status copy_by_thread(copy_direction direction, void *destination, const void *source, uint64_t size_bytes,
                          uint64_t *time_ns) override;
    status checksum(stream_id stream, const void *data, uint64_t size_bytes, uint64_t *accumulator) override;

private:
    struct region {
        uint64_t size_bytes;
        uint32_t number;
    };
    void note_copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                   uint64_t size_bytes, code result);
    void add(trace_entry entry);
    void add_event_call(call_kind kind, code result, event_id event, const stream_id *stream);
    result<void *> add_allocation(call_kind kind, uint64_t size_bytes, const result<void *> &given);
    status add_release(call_kind kind, void *data, uint64_t size_bytes, const status &released);
    uint32_t stream_number(stream_id stream);
    uint32_t event_number(event_id event);
    trace_place place(const void *data);

    mutable std::mutex mutex_;
    bool on_ = true;
    std::vector<trace_entry> entries_;
    std::map<const void *, region> regions_;
    std::unordered_map<const void *, uint32_t> foreign_;
    std::unordered_map<uint64_t, uint32_t> streams_;
    std::unordered_map<uint64_t, uint32_t> events_;
    uint32_t region_count_ = 0;
};

}  // namespace ebb
