// The device interface: memory, streams, events and copies, as the core needs them and no more. Backends:
// host (real threads), sim (virtual time), null (nothing happens), later cuda; fault decorates any of them. One
// contract suite (tests/contract) holds for all.
//
// Semantics are CUDA's:
// - A stream runs what was enqueued on it in order; different streams are unordered but for events.
// - record_event marks the point after everything enqueued on the stream so far. wait_event makes a stream
//   wait for the most recent record at the time of the call; a later record of the same event changes nothing
//   for waits already enqueued. Waiting for an event that was never recorded is an error.
// - Nothing but alloc_*, free_*, create_*, destroy_* and synchronize_event may block the calling thread or
//   allocate memory once warm.
// Thread-safety: every call may come from any thread; calls on one stream are ordered by the caller.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.hpp"

namespace ebb {

// As in the C ABI: 0 default stream, 1 legacy, 2 per-thread, all ones the calling thread (never passed down to
// a device), anything else an address or number that the device gave out.
enum class stream_id : uint64_t {};
enum class event_id : uint64_t {};

constexpr stream_id k_default_stream{0};
constexpr stream_id k_calling_thread{~uint64_t{0}};

enum class copy_direction : uint8_t { d2h, h2d, d2d };
enum class stream_role : uint8_t { compute, d2h, h2d, join };
enum class event_kind : uint8_t { plain, timed };

// DLPack's device type numbers.
enum class memory_type : int32_t { cpu = 1, cuda = 2, cuda_host = 3 };

// Rates of copies, measured; 0: not known.
struct link_rates {
    uint64_t d2h_bytes_per_second = 0;
    uint64_t h2d_bytes_per_second = 0;
    uint64_t d2h_beside_h2d_bytes_per_second = 0;  // each while the other direction is busy, too
    uint64_t h2d_beside_d2h_bytes_per_second = 0;
};

struct copy_piece {
    void *destination = nullptr;
    const void *source = nullptr;
    uint64_t size_bytes = 0;
};

// The capture into a graph that a stream is part of.
enum class capture_id : uint64_t { none = 0 };

struct device_info {
    std::string name;                     // "host", "null", "sim", "cuda"
    memory_type type = memory_type::cpu;  // what the activations' memory must be
    int32_t ordinal = 0;
    bool integrated = false;    // device memory is host memory: copying cannot pay
    bool threads_copy = false;  // copy_by_thread() copies
    bool captures = false;      // streams can be captured into graphs: capture_of() has something to say
    uint64_t default_chunk_bytes = 16ULL << 20U;
    link_rates measured_link;           // where the device was asked to measure it
    uint64_t slab_bytes = 1ULL << 30U;  // largest growth step of the pinned arena
};

struct device_memory {
    uint64_t capacity_bytes = 0;
    uint64_t free_bytes = 0;
};

class device {
public:
    virtual ~device() = default;

    [[nodiscard]] virtual const device_info &info() const noexcept = 0;

    // Device memory, aligned to 512 bytes at least. Beyond the capacity: code::out_of_device_memory with the
    // bytes wanted, held and the cap in the text.
    virtual result<void *> alloc_device(uint64_t size_bytes) = 0;
    virtual status free_device(void *data, uint64_t size_bytes) = 0;
    [[nodiscard]] virtual device_memory memory() const = 0;

    // One pinned registration, aligned to 4 KiB, touched (in parallel where that helps). Refused pinning is
    // code::out_of_host_memory and says which of pinning, the control group or the system refused.
    virtual result<void *> map_host(uint64_t size_bytes) = 0;
    virtual status unmap_host(void *data, uint64_t size_bytes) = 0;
    // Bytes that map_host may still be asked for without running into the control group's or system's limit.
    [[nodiscard]] virtual uint64_t host_room_bytes() const = 0;

    // Streams of our own. Borrowed streams (the caller's) are given by number to the calls below.
    virtual result<stream_id> create_stream(stream_role role) = 0;
    virtual status destroy_stream(stream_id stream) = 0;  // behind what is enqueued on it
    // Whether the number can be a stream of this device: invalid_argument says why not.
    [[nodiscard]] virtual status check_stream(stream_id stream) const = 0;

    virtual result<event_id> create_event(event_kind kind) = 0;
    virtual status destroy_event(event_id event) = 0;
    virtual status record_event(event_id event, stream_id stream) = 0;
    virtual status wait_event(stream_id stream, event_id event) = 0;
    virtual result<bool> event_done(event_id event) = 0;
    virtual status synchronize_event(event_id event) = 0;  // blocks the calling thread
    // Time between two timed events that are done.
    virtual result<uint64_t> elapsed_ns(event_id start, event_id end) = 0;

    virtual status copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                        uint64_t size_bytes) = 0;
    // The same for several pieces, in one call where the device has one that is cheaper.
    virtual status copy_pieces(stream_id stream, copy_direction direction, const copy_piece *pieces, uint32_t count) {
        for (uint32_t i = 0; i < count; ++i) {
            EBB_TRY(copy(stream, direction, pieces[i].destination, pieces[i].source, pieces[i].size_bytes));
        }
        return {};
    }
    // Copies before it returns, and adds what it took to *time_ns where that is not null; behind copies of other
    // threads and streams that are under way: where device memory is the CPU's.
    virtual status copy_by_thread(copy_direction /*direction*/, void * /*destination*/, const void * /*source*/,
                                  uint64_t /*size_bytes*/, uint64_t * /*time_ns*/) {
        return {code::unsupported, "copy_by_thread: threads do not copy on this device"};
    }
    // *accumulator = checksum_bytes(*accumulator, data, size) when the stream gets there; data may be device or
    // pinned memory. The accumulator, of map_host unless device memory is the CPU's, lives until the stream has passed.
    virtual status checksum(stream_id stream, const void *data, uint64_t size_bytes, uint64_t *accumulator) = 0;

    // What is enqueued on a stream in a capture becomes part of a graph and runs whenever that is launched: an event
    // recorded there orders work of the same capture alone, and is never done. A capture that CUDA has given up is
    // wrong_state. Devices without graphs have none.
    virtual result<capture_id> capture_of(stream_id /*stream*/) { return capture_id::none; }

    // For a profiler: what the calling thread does from here on is `what` of that name; ranges nest.
    virtual void begin_range(const char * /*what*/, const char * /*name*/, uint64_t /*size_bytes*/) noexcept {}
    virtual void end_range() noexcept {}
};

// The checksum that every device computes: 64-bit, chainable over extents that are multiples of 8 bytes but
// for the last one.
[[nodiscard]] uint64_t checksum_bytes(uint64_t accumulator, const void *data, uint64_t size_bytes) noexcept;

}  // namespace ebb
