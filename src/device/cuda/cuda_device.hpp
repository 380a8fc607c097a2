// A GPU through the CUDA runtime. All of CUDA is reached through a table of its functions (cuda_api.hpp), so that the
// same code runs on the tests' double.
//
// - A call on a stream that is ours, or the caller's own (a cudaStream_t), is one CUDA call. On streams 0, 1 and 2,
// which
//   mean the current device's, the device is made current around it.
// - Every call leaves the thread's current device and capture mode as they were.
// - Calls that another thread's capture forbids (asking, creating, allocating) are made in the relaxed mode.
// - Once CUDA has reported an error that it keeps returning, calls fail at once and name it, nothing waits, and what is
//   given back is forgotten. The same holds once the process has begun to exit.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "device/cuda/checksum_scratch.hpp"
#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_errors.hpp"
#include "device/cuda/cuda_events.hpp"
#include "device/cuda/cuda_streams.hpp"
#include "device/device.hpp"
#include "device/host/host_pages.hpp"

namespace ebb {

struct cuda_device_options {
    std::string system_root = "/";  // where limits and NUMA nodes are read; tests give another
    uint32_t prefault_threads = 0;  // 0: as many as help
};

class cuda_device final : public device {
public:
    // The table outlives the device.
    static result<std::unique_ptr<cuda_device>> make(const cuda_api &api, int32_t ordinal,
                                                     const cuda_device_options &options);
    // Gives back whatever is still out. Work that is enqueued goes on.
    ~cuda_device() override;
    cuda_device(const cuda_device &) = delete;
    cuda_device &operator=(const cuda_device &) = delete;

    [[nodiscard]] const device_info &info() const noexcept override { return info_; }

    result<void *> alloc_device(uint64_t size_bytes) override;
    status free_device(void *data, uint64_t size_bytes) override;
    [[nodiscard]] device_memory memory() const override;

    result<void *> map_host(uint64_t size_bytes) override;
    status unmap_host(void *data, uint64_t size_bytes) override;
    [[nodiscard]] uint64_t host_room_bytes() const override;

    result<stream_id> create_stream(stream_role role) override;
    status destroy_stream(stream_id stream) override;
    [[nodiscard]] status check_stream(stream_id stream) const override;

    result<event_id> create_event(event_kind kind) override;
    status destroy_event(event_id event) override;
    status record_event(event_id event, stream_id stream) override;
    status wait_event(stream_id stream, event_id event) override;
    // wrong_state for an event that was last recorded in a capture: it is part of a graph, and never done.
    result<bool> event_done(event_id event) override;
    status synchronize_event(event_id event) override;
    result<uint64_t> elapsed_ns(event_id start, event_id end) override;

    status copy(stream_id stream, copy_direction direction, void *destination, const void *source,
                uint64_t size_bytes) override;
    status copy_pieces(stream_id stream, copy_direction direction, const copy_piece *pieces, uint32_t count) override;
    status checksum(stream_id stream, const void *data, uint64_t size_bytes, uint64_t *accumulator) override;

    result<capture_id> capture_of(stream_id stream) override;

    // What CUDA calls a stream of ours or the caller's.
    [[nodiscard]] result<cudaStream_t> native_stream(stream_id stream) const;

private:
    cuda_device(const cuda_api &api, int32_t ordinal, const cuda_device_options &options)
        : api_(api), options_(options), ordinal_(ordinal), errors_(api, ordinal) {}
    status open();
    void give_back_all();
    // Runs call(cudaStream_t) where the stream may be used.
    template <class Call>
    status on_stream(stream_id stream, const Call &call);
    status check_timed(event_id event, const char *which);
    [[nodiscard]] bool may_batch(stream_id stream, const copy_piece *pieces, uint32_t count);
    status copy_batch(cudaStream_t stream, copy_direction direction, const copy_piece *pieces, uint32_t count);

    struct block {
        void *base = nullptr;  // what CUDA gave
        uint64_t size_bytes = 0;
    };
    struct slab {
        host_pages pages;
        uint64_t size_bytes = 0;
    };
    result<block> allocate(uint64_t size_bytes, uint64_t slack_bytes);
    [[nodiscard]] status refused_device_memory(uint64_t size_bytes, const std::string &why);

    const cuda_api &api_;
    const cuda_device_options options_;
    const int32_t ordinal_;
    device_info info_;
    mutable cuda_errors errors_;
    cuda_streams streams_;
    cuda_events events_;
    checksum_scratch scratch_{api_, errors_};
    std::atomic<bool> has_batch_{false};

    mutable std::mutex memory_mutex_;
    mutable device_memory last_memory_;
    uint64_t held_bytes_ = 0;
    std::map<void *, block> blocks_;
    std::map<void *, slab> slabs_;
};

}  // namespace ebb
