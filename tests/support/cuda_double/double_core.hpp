// What stands behind the double's two tables of functions: the state of CUDA in this process, under one lock. Every
// call goes through call_of_backend or call_of_user, which count, fail as planned and keep the thread's last error.
#pragma once

#include <driver_types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cuda_double/call_plan.hpp"
#include "cuda_double/capture.hpp"
#include "cuda_double/cuda_double_options.hpp"
#include "cuda_double/double_stream.hpp"
#include "cuda_double/memory_map.hpp"
#include "cuda_double/misuse_log.hpp"
#include "device/host/host_stream.hpp"
#include "uncounted.hpp"

namespace ebb::test {

// CUDA's state of the calling thread.
struct cuda_thread {
    uint64_t core = 0;        // of which double
    uint64_t number = 0;      // of the thread, for good
    int device = 0;           // of cudaSetDevice
    bool bound = false;       // to that device's context
    std::vector<int> pushed;  // devices whose contexts were pushed over it
    cudaError_t last_error = cudaSuccess;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;

    [[nodiscard]] int current() const { return pushed.empty() ? device : pushed.back(); }
};

struct double_device {
    device_life life;
    bool in_use = false;  // its primary context is alive
    uint64_t used_bytes = 0;
};

struct double_event {
    int device = 0;
    unsigned flags = 0;
    cuda_caller owner = cuda_caller::backend;
    marker *point = nullptr;                 // of the latest record, outside of captures
    progress_clock behind;                   // where its stream was
    std::shared_ptr<graph_capture> capture;  // of the latest record, where that was in one
    node_set nodes;
};

struct double_graph {
    std::vector<graph_node> nodes;
};

struct double_graph_exec {
    std::shared_ptr<const double_graph> graph;
    marker *last_launch = nullptr;
    progress_clock behind;
};

class double_core {
public:
    // One call while it lasts.
    struct call {
        const char *name;
        cuda_caller caller;
        cuda_thread &thread;
        std::unique_lock<std::mutex> &lock;
    };
    // A range that a kernel uses.
    struct kernel_range {
        const void *data;
        uint64_t size_bytes;
        bool writes;
    };

    explicit double_core(const cuda_double_options &options);
    ~double_core();
    double_core(const double_core &) = delete;
    double_core &operator=(const double_core &) = delete;

    template <class Body>
    cudaError_t call_of_backend(cuda_call which, const Body &body) {
        const uncounted allocations;
        std::unique_lock lock(mutex_);
        call c{name_of(which), cuda_caller::backend, this_thread(), lock};
        std::optional<cudaError_t> refused = before_backend_call(c, which);
        const cudaError_t error = refused ? *refused : body(c);
        return is_of_driver(which) ? error : note_error(c, error);
    }
    template <class Body>
    cudaError_t call_of_user(const char *name, const Body &body, bool needs_context = true) {
        std::unique_lock lock(mutex_);
        call c{name, cuda_caller::user, this_thread(), lock};
        std::optional<cudaError_t> refused = before_call(c, needs_context);
        return note_error(c, refused ? *refused : body(c));
    }
    // Neither counted nor refused.
    cudaError_t take_last_error(bool clear);

    // Devices.
    cudaError_t get_device_count(call &c, int *count);
    cudaError_t set_device(call &c, int ordinal);
    cudaError_t push_device(call &c, int ordinal);
    cudaError_t pop_device(call &c);
    cudaError_t device_in_use(call &c, int ordinal, int *in_use) const;
    cudaError_t has_context(call &c, int *has) const;
    cudaError_t device_get_attribute(call &c, int *value, cudaDeviceAttr which, int ordinal);
    cudaError_t check_ordinal(int ordinal) const;
    cudaError_t device_synchronize(call &c);

    // Memory.
    cudaError_t mem_get_info(call &c, size_t *free_bytes, size_t *total_bytes);
    cudaError_t malloc(call &c, void **data, size_t size_bytes);
    cudaError_t free(call &c, void *data);
    cudaError_t host_alloc(call &c, void **data, size_t size_bytes, unsigned flags);
    cudaError_t free_host(call &c, void *data);
    cudaError_t host_register(call &c, void *data, size_t size_bytes, unsigned flags);
    cudaError_t host_unregister(call &c, void *data);

    // Streams.
    cudaError_t stream_create(call &c, cudaStream_t *stream, unsigned flags);
    cudaError_t stream_destroy(call &c, cudaStream_t stream);
    cudaError_t stream_wait_event(call &c, cudaStream_t stream, cudaEvent_t event, unsigned flags);
    cudaError_t stream_query(call &c, cudaStream_t stream);
    cudaError_t stream_synchronize(call &c, cudaStream_t stream);

    // Events.
    cudaError_t event_create(call &c, cudaEvent_t *event, unsigned flags);
    cudaError_t event_destroy(call &c, cudaEvent_t event);
    cudaError_t event_record(call &c, cudaEvent_t event, cudaStream_t stream);
    cudaError_t event_query(call &c, cudaEvent_t event);
    cudaError_t event_synchronize(call &c, cudaEvent_t event);
    cudaError_t event_elapsed_time(call &c, float *milliseconds, cudaEvent_t start, cudaEvent_t end);

    // Captures and graphs.
    static cudaError_t exchange_capture_mode(call &c, cudaStreamCaptureMode *mode);
    cudaError_t begin_capture(call &c, cudaStream_t stream, cudaStreamCaptureMode mode);
    cudaError_t end_capture(call &c, cudaStream_t stream, cudaGraph_t *graph);
    cudaError_t capture_info(call &c, cudaStream_t stream, cudaStreamCaptureStatus *status, unsigned long long *id);
    cudaError_t graph_instantiate(call &c, cudaGraphExec_t *exec, cudaGraph_t graph);
    cudaError_t graph_launch(call &c, cudaGraphExec_t exec, cudaStream_t stream);
    cudaError_t graph_exec_destroy(call &c, cudaGraphExec_t exec);
    cudaError_t graph_destroy(call &c, cudaGraph_t graph);

    // Work.
    cudaError_t memcpy_async(call &c, void *destination, const void *source, size_t size_bytes, cudaMemcpyKind kind,
                             cudaStream_t stream);
    cudaError_t memcpy_now(call &c, void *destination, const void *source, size_t size_bytes, cudaMemcpyKind kind);
    cudaError_t memcpy_batch_async(call &c, void *const *destinations, const void *const *sources,
                                   const size_t *sizes_bytes, size_t count, const cudaMemcpyAttributes *attributes,
                                   const size_t *attribute_indices, size_t attribute_count, cudaStream_t stream);
    cudaError_t memset_async(call &c, void *data, int value, size_t size_bytes, cudaStream_t stream);
    cudaError_t launch(call &c, cudaStream_t stream, std::string what, const std::vector<kernel_range> &ranges,
                       std::function<void()> run, work_kind kind = work_kind::finite);

    // For tests.
    [[nodiscard]] const cuda_double_options &options() const { return options_; }
    [[nodiscard]] std::unique_lock<std::mutex> locked() { return std::unique_lock(mutex_); }
    [[nodiscard]] call_plan &plan() { return plan_; }
    [[nodiscard]] misuse_log &misuses() { return misuses_; }
    [[nodiscard]] memory_map &memory() { return memory_; }
    void break_device(int ordinal, cudaError_t error);
    void begin_exit() { exiting_ = true; }
    void set_pinned_limit(uint64_t bytes);
    // Writes down what the backend has made and not given back.
    void check_all_is_given_back();
    // Everything that is enqueued has run.
    void finish();

private:
    struct checked_copy {
        stream_work work;
        memory_place source = memory_place::pageable;
        memory_place destination = memory_place::pageable;
    };

    cuda_thread &this_thread() const;
    std::optional<cudaError_t> before_backend_call(call &c, cuda_call which);
    std::optional<cudaError_t> before_call(call &c, bool needs_context);
    static cudaError_t note_error(call &c, cudaError_t error);
    cudaError_t misused(const call &c, cuda_rule rule, const std::string &text, cudaError_t error);
    double_device &device(int ordinal) { return devices_[static_cast<size_t>(ordinal)]; }
    cudaError_t driver_error() const;
    [[nodiscard]] int attribute(cudaDeviceAttr which) const;
    [[nodiscard]] memory_place place_of(const memory_block *block) const;

    // Streams by handle; null where there is none.
    double_stream *find_stream(call &c, cudaStream_t handle);
    cudaError_t no_stream(const call &c, cudaStream_t handle);
    double_stream &default_stream(std::map<std::pair<uint64_t, int>, double_stream *> &streams, uint64_t key,
                                  int ordinal, stream_kind kind);
    double_stream *add_stream(int ordinal, stream_kind kind, cuda_caller owner);
    // Found, and allowed to be given work.
    cudaError_t stream_for_work(call &c, cudaStream_t handle, double_stream **stream);
    void forget_idle_streams();
    void order(double_stream &later, double_stream &earlier);
    void order_with_legacy(double_stream &stream);
    void bring_in_blocking(double_stream &asked);
    cudaError_t wait_on_host(call &c, double_stream &stream);
    cudaError_t wait_in_capture(call &c, double_stream &stream, double_event &event);

    double_event *find_event(cudaEvent_t handle);
    cudaError_t no_event(const call &c, cudaEvent_t handle);
    cudaError_t check_asked_event(call &c, cudaEvent_t handle, double_event **event);

    // What captures forbid.
    cudaError_t check_safe(call &c);
    cudaError_t check_legacy(call &c, int ordinal, bool spoil);
    cudaError_t check_stream_asked(call &c, double_stream &stream);
    cudaError_t check_device_not_capturing(call &c, int ordinal);
    cudaError_t spoil(const call &c, graph_capture &capture, cuda_rule rule, const std::string &text,
                      cudaError_t error);
    [[nodiscard]] static bool forbids(const graph_capture &capture, const cuda_thread &thread);

    cudaError_t check_copy(call &c, void *destination, const void *source, size_t size_bytes, cudaMemcpyKind kind,
                           checked_copy *copy);
    cudaError_t check_range(const call &c, const void *data, uint64_t size_bytes, memory_block **block);
    cudaError_t copy_pageable(call &c, double_stream &stream, checked_copy copy, void *destination, const void *source,
                              size_t size_bytes);
    cudaError_t check_attributes(const call &c, size_t count, const cudaMemcpyAttributes *attributes,
                                 const size_t *indices, size_t attribute_count);
    cudaError_t check_kernel(call &c, const double_stream &stream, const std::string &what,
                             const std::vector<kernel_range> &ranges, std::vector<memory_access> *accesses);
    cudaError_t give(call &c, double_stream &stream, stream_work work);
    cudaError_t release(call &c, memory_block &block);
    std::vector<size_t> shuffled_order(const std::vector<graph_node> &nodes);

    const cuda_double_options options_;
    const uint64_t number_;
    std::mutex mutex_;
    misuse_log misuses_;
    call_plan plan_;
    bool exiting_ = false;
    uint64_t pinned_limit_bytes_;
    uint64_t pinned_bytes_ = 0;
    std::deque<double_device> devices_;
    host_engines engines_;
    memory_map memory_;
    progress_clock known_;  // what the host has seen the end of
    std::mt19937_64 random_;

    std::map<uint32_t, std::unique_ptr<double_stream>> streams_;  // by number
    std::map<std::pair<uint64_t, int>, double_stream *> legacy_;  // by nothing and device
    std::map<std::pair<uint64_t, int>, double_stream *> per_thread_;
    std::map<cudaStream_t, double_stream *> stream_handles_;
    std::map<cudaEvent_t, double_event> events_;
    std::map<cudaGraph_t, std::shared_ptr<double_graph>> graphs_;
    std::map<cudaGraphExec_t, double_graph_exec> execs_;
    std::vector<std::shared_ptr<graph_capture>> captures_;  // not ended
    uint32_t next_stream_ = 16;
    uint64_t next_handle_ = 1;
    unsigned long long next_capture_ = 1;
};

}  // namespace ebb::test
