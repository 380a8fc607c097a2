// What the benchmark has a device compute: a gate that streams stand at, a pattern written and looked at, and work
// that keeps the device busy. None of it is Ebb's.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "device/device.hpp"
#include "link/link_cell.hpp"

namespace ebb::link {

class link_kernels {
public:
    virtual ~link_kernels() = default;

    // Streams that are held stand still until the gate opens, so that all copies are enqueued before the first one
    // runs. There is one gate. It opens by itself after a while, so that nothing hangs: open_gate says so then.
    virtual status close_gate() = 0;
    virtual status hold(stream_id stream) = 0;
    virtual status open_gate() = 0;

    virtual status fill(stream_id stream, void *data, uint64_t size_bytes, uint64_t seed) = 0;
    // Waits for the stream.
    virtual result<uint64_t> count_wrong(stream_id stream, const void *data, uint64_t size_bytes, uint64_t seed) = 0;

    // Between these the device computes, or runs collectives, on a stream of their own.
    virtual status begin_load(load under) = 0;
    virtual status end_load() = 0;
};

}  // namespace ebb::link
