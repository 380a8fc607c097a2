// A stream of the double: a thread of the host device, and what CUDA's rules want to know of it.
#pragma once

#include <driver_types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "cuda_double/capture.hpp"
#include "cuda_double/memory_map.hpp"
#include "cuda_double/progress_clock.hpp"
#include "device/host/host_stream.hpp"

namespace ebb::test {

enum class stream_kind : uint8_t { legacy, per_thread, blocking, non_blocking };

struct double_stream {
    cudaStream_t handle = nullptr;
    uint32_t number = 0;
    int device = 0;
    stream_kind kind = stream_kind::blocking;
    cuda_caller owner = cuda_caller::backend;
    std::unique_ptr<host_stream> thread;
    uint64_t enqueued = 0;  // pieces of work, and waits
    progress_clock behind;  // what it has come behind, its own work included
    bool destroyed = false;
    std::shared_ptr<graph_capture> capture;  // while it is part of one
    node_set frontier;                       // the nodes there that its next one comes behind

    [[nodiscard]] stream_id id() const { return stream_id{number}; }
    [[nodiscard]] bool blocks_with_legacy() const {
        return kind == stream_kind::blocking || kind == stream_kind::per_thread;
    }
    void count_work() { behind.reach(number, ++enqueued); }
    [[nodiscard]] bool idle() const { return thread->reached(thread->enqueued()); }
};

// Whether a device still does anything.
class device_life {
public:
    [[nodiscard]] cudaError_t error() const { return static_cast<cudaError_t>(error_.load()); }
    // From here on nothing begins, and nothing that ends by itself is under way.
    void end(cudaError_t error);
    // False when it is over; otherwise leave() is due, where the work ends by itself.
    bool enter(bool ends_by_itself);
    void leave(bool ends_by_itself);

private:
    std::atomic<int> error_{cudaSuccess};
    std::atomic<int> under_way_{0};
};

// Enqueues without looking at any rule.
void enqueue(double_stream &stream, std::function<void()> run, work_kind kind, device_life &life);
// The point after everything that is enqueued on it now; held once, for the caller, and by the stream.
[[nodiscard]] marker *mark(double_stream &stream, marker_pool &markers, event_kind kind = event_kind::plain);
// Whatever is enqueued on `later` from here on comes behind that point. Takes over a hold.
void wait_for(double_stream &later, marker *point);

}  // namespace ebb::test
