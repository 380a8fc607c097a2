// Pages that were given back while streams may still be at work on them. Freeing memory is ordered with the
// streams for the caller, so unmapping is put off until every stream has passed what it had been given by then; a
// free or an allocation never waits for that.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "device/host/host_pages.hpp"
#include "device/host/stream_table.hpp"

namespace ebb {

class retired_pages {
public:
    explicit retired_pages(const stream_table &streams) : streams_(streams) {}
    ~retired_pages();  // the streams have ended by then
    retired_pages(const retired_pages &) = delete;
    retired_pages &operator=(const retired_pages &) = delete;

    void add(const host_pages &pages);
    // Unmaps what all streams have passed.
    void collect();
    [[nodiscard]] uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

private:
    struct entry {
        host_pages pages;
        std::vector<stream_point> behind;
    };
    const stream_table &streams_;
    std::mutex mutex_;
    std::vector<entry> entries_;
    std::atomic<uint64_t> bytes_{0};
};

}  // namespace ebb
