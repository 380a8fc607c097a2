// How much memory a baseline held at once. Each piece is taken and given back at a point of a stream, so the peak is
// known when the step has run and its events have times.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"

namespace ebb::baselines {

class baseline_memory {
public:
    explicit baseline_memory(uint64_t fixed_bytes) : fixed_bytes_(fixed_bytes) {}

    // From the time of a timed event on.
    void take(uint64_t size_bytes, event_id at) { changes_.push_back({static_cast<int64_t>(size_bytes), at, at}); }
    // From the later of two on.
    void give_back(uint64_t size_bytes, event_id at, event_id and_at) {
        changes_.push_back({-static_cast<int64_t>(size_bytes), at, and_at});
    }
    // Pinned blocks come from a pool, which is as large as it has been.
    void take_host(uint64_t size_bytes) {
        host_bytes_ += size_bytes;
        host_peak_bytes_ = host_bytes_ > host_peak_bytes_ ? host_bytes_ : host_peak_bytes_;
    }
    void give_back_host(uint64_t size_bytes) { host_bytes_ -= size_bytes; }

    // When all events have passed; `start` is a timed event before them.
    [[nodiscard]] result<uint64_t> device_peak_bytes(device &on, event_id start) const;
    [[nodiscard]] uint64_t host_peak_bytes() const noexcept { return host_peak_bytes_; }

private:
    struct change {
        int64_t size_bytes;
        event_id at, and_at;
    };

    uint64_t fixed_bytes_;
    uint64_t host_bytes_ = 0, host_peak_bytes_ = 0;
    std::vector<change> changes_;
};

}  // namespace ebb::baselines
