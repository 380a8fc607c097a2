// A number of equal copies one way, either plain ones or Ebb's offloads and reloads: made ready, enqueued one by one
// behind a gate, and looked at afterwards.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.hpp"
#include "link/link_rig.hpp"

namespace ebb::link {

// Where the copies' memory lies: areas of the rig's that traffic beside it does not use.
struct traffic_memory {
    char *sources = nullptr;  // on the device; of plain copies, either end
    char *pinned = nullptr;   // for plain copies
};

struct traffic_size {
    uint64_t copy_bytes = 0;
    uint64_t count = 0;
};

class traffic {
public:
    virtual ~traffic() = default;

    // Fills what is to be copied; waits until that is done.
    virtual status prepare(uint64_t seed) = 0;
    // The streams to hold at the gate before anything is enqueued ...
    [[nodiscard]] virtual stream_id held_stream() const = 0;
    virtual status enqueue(uint64_t number) = 0;
    // ... and the one that is behind all copies when it goes on.
    [[nodiscard]] virtual stream_id last_stream() const = 0;
    // Looks at every byte that arrived: code::data_mismatch says which copy was wrong. Gives everything back.
    virtual status verify() = 0;
};

// Plain copies of the device: on CUDA, each is one cudaMemcpyAsync.
result<std::unique_ptr<traffic>> make_plain_traffic(link_rig &rig, way direction, traffic_size size,
                                                    traffic_memory memory);
// ebb_offload or ebb_reload of as many activations.
result<std::unique_ptr<traffic>> make_ebb_traffic(link_rig &rig, way direction, traffic_size size,
                                                  traffic_memory memory);

}  // namespace ebb::link
