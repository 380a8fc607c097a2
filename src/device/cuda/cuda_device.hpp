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

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/cuda/checksum_scratch.hpp"
#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_context.hpp"
#include "device/cuda/cuda_events.hpp"
#include "device/cuda/cuda_ranges.hpp"
#include "device/cuda/cuda_streams.hpp"
#include "device/cuda/device_blocks.hpp"
#include "device/cuda/link_rates.hpp"
#include "device/cuda/pinned_slabs.hpp"
#include "device/device.hpp"

namespace ebb {

struct cuda_device_options {
    bool calibrate = false;                      // measure the link before anything else
    bool nvtx = false;                           // ranges for a profiler
    std::string system_root = "/";               // where limits and NUMA nodes are read; tests give another
    uint32_t prefault_threads = 0;               // 0: as many as help
    uint64_t calibration_bytes = 128ULL << 20U;  // pinned for it, per direction
};

// What was found out about the device.
struct cuda_device_statistics {
    std::string model;      // "NVIDIA H200"
    bool coherent = false;  // the GPU reads through the host's page tables (Grace): copying pays all the same
    bool integrated = false;
    bool copies_in_batches = false;
    pinned_statistics pinned;
};

class cuda_device final : public device {
public:
    // The table outlives the device.
    static result<std::unique_ptr<cuda_device>> make(const cuda_api &api, int32_t ordinal,
                                                     const cuda_device_options &options);
    // Waits for our streams, and gives back whatever is still out.
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

    void begin_range(const char *what, const char *name, uint64_t size_bytes) noexcept override {
        ranges_.begin(what, name, size_bytes);
    }
    void end_range() noexcept override { ranges_.end(); }

    // What CUDA calls a stream of ours or the caller's.
    [[nodiscard]] result<cudaStream_t> native_stream(stream_id stream) const;
    [[nodiscard]] cuda_device_statistics statistics() const;
    // What a user should be told once: found while the device was made.
    [[nodiscard]] const std::vector<std::string> &notes() const noexcept { return notes_; }

private:
    cuda_device(const cuda_api &api, int32_t ordinal, const cuda_device_options &options);
    status open();
    status find_out();
    result<int> attribute(cudaDeviceAttr which);
    void choose_chunk_size(int compute_capability_major);
    status wait_for(const std::vector<cudaStream_t> &streams);
    status wait_for_our_streams();
    void give_back_all();
    // Runs call(cudaStream_t) where the stream may be used.
    template <class Call>
    status on_stream(stream_id stream, const Call &call);
    status check_timed(event_id event, const char *which);
    [[nodiscard]] bool may_batch(stream_id stream, const copy_piece *pieces, uint32_t count) const noexcept;
    status copy_batch(cudaStream_t stream, copy_direction direction, const copy_piece *pieces, uint32_t count);

    const cuda_device_options options_;
    device_info info_;
    std::string model_;
    std::vector<std::string> notes_;
    mutable cuda_context context_;
    const cuda_api &api_ = context_.api;
    cuda_errors &errors_ = context_.errors;
    const cuda_ranges ranges_;
    cuda_streams streams_;
    std::mutex ending_mutex_;  // while one waits for our streams, no other ends one
    cuda_events events_;
    mutable device_blocks blocks_{context_};
    pinned_slabs slabs_;
    checksum_scratch scratch_{context_};
};

}  // namespace ebb
