// The streams of a host device by number: the default stream, made when first used, and those created.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/host/host_stream.hpp"

namespace ebb {

// How far a stream had been filled when someone looked.
struct stream_point {
    const host_stream *stream;
    uint64_t enqueued;
};

class stream_table {
public:
    explicit stream_table(host_engines &engines) : engines_(engines) {}
    ~stream_table() { finish(); }
    stream_table(const stream_table &) = delete;
    stream_table &operator=(const stream_table &) = delete;

    // Does everything that is enqueued, then ends the threads.
    void finish();

    result<stream_id> create(stream_role role);
    status destroy(stream_id stream);
    [[nodiscard]] status check(stream_id stream) const;
    // The object that is, or was, the stream of that number: it checks the number itself.
    result<host_stream *> find(stream_id stream);

    // Where all streams are filled to now. When they have reached that, whatever was enqueued before is over.
    [[nodiscard]] std::vector<stream_point> points() const;

private:
    static constexpr uint32_t k_max_streams = 1024;  // each is a thread
    result<host_stream *> default_stream();
    [[nodiscard]] host_stream *at(stream_id stream) const noexcept;

    host_engines &engines_;
    mutable std::mutex mutex_;  // creation only; lookups take no lock
    std::vector<std::unique_ptr<host_stream>> streams_;
    std::vector<uint32_t> free_;
    std::array<std::atomic<host_stream *>, k_max_streams> lookup_{};
    std::unique_ptr<host_stream> default_owner_;
    std::atomic<host_stream *> default_{nullptr};
};

}  // namespace ebb
