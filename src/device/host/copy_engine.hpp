// The link of one direction, shared by all streams: one copy at a time, in order of arrival, at the link's rate.
// The stream that wants a copy does it itself while it holds the engine.
#pragma once

#include <atomic>
#include <cstdint>

namespace ebb {

class copy_engine {
public:
    // bytes_per_second 0: as fast as memory is.
    explicit copy_engine(uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

    void copy(void *destination, const void *source, uint64_t size_bytes) noexcept;

private:
    void await_turn() noexcept;
    void end_turn() noexcept;
    void copy_paced(void *destination, const void *source, uint64_t size_bytes) noexcept;
    [[nodiscard]] uint64_t link_ns(uint64_t size_bytes) const noexcept;

    const uint64_t bytes_per_second_;
    std::atomic<uint32_t> next_ticket_{0};
    std::atomic<uint32_t> serving_{0};
    std::atomic<uint64_t> free_at_ns_{0};  // when the link is through with the copies so far; set by whoever is served
};

}  // namespace ebb
