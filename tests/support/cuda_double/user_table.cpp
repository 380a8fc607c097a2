// The caller's table of CUDA functions, over the double.
#include <fmt/core.h>

#include <chrono>
#include <thread>

#include "cuda_double/cuda_double.hpp"
#include "cuda_double/double_core.hpp"

namespace ebb::test {
namespace {

using call = double_core::call;

#define EBB_PASS_ON(name, core_function, ...) \
    current_cuda_double().call_of_user(       \
        #name, [&](call &c) { return current_cuda_double().core_function(c __VA_OPT__(, ) __VA_ARGS__); })

// Those that bring no context to life, but for the device that is set.
cudaError_t get_device(int *ordinal) {
    return current_cuda_double().call_of_user(
        "get_device",
        [&](call &c) {
            *ordinal = c.thread.current();
            return cudaSuccess;
        },
        false);
}
cudaError_t set_device(int ordinal) {
    return current_cuda_double().call_of_user(
        "set_device", [&](call &c) { return current_cuda_double().set_device(c, ordinal); }, false);
}
cudaError_t thread_exchange_stream_capture_mode(cudaStreamCaptureMode *mode) {
    return current_cuda_double().call_of_user(
        "thread_exchange_stream_capture_mode", [&](call &c) { return double_core::exchange_capture_mode(c, mode); },
        false);
}

cudaError_t device_synchronize() {
    return EBB_PASS_ON(device_synchronize, device_synchronize);
}
cudaError_t get_last_error() {
    return current_cuda_double().take_last_error(true);
}
cudaError_t peek_at_last_error() {
    return current_cuda_double().take_last_error(false);
}

cudaError_t mem_get_info(size_t *free_bytes, size_t *total_bytes) {
    return EBB_PASS_ON(mem_get_info, mem_get_info, free_bytes, total_bytes);
}
cudaError_t malloc_device(void **data, size_t size_bytes) {
    return EBB_PASS_ON(malloc, malloc, data, size_bytes);
}
cudaError_t free_device(void *data) {
    return EBB_PASS_ON(free, free, data);
}
cudaError_t host_alloc(void **data, size_t size_bytes, unsigned flags) {
    return EBB_PASS_ON(host_alloc, host_alloc, data, size_bytes, flags);
}
cudaError_t free_host(void *data) {
    return EBB_PASS_ON(free_host, free_host, data);
}
cudaError_t memcpy_now(void *destination, const void *source, size_t size_bytes, cudaMemcpyKind kind) {
    return EBB_PASS_ON(memcpy, memcpy_now, destination, source, size_bytes, kind);
}
cudaError_t memcpy_async(void *destination, const void *source, size_t size_bytes, cudaMemcpyKind kind,
                         cudaStream_t stream) {
    return EBB_PASS_ON(memcpy_async, memcpy_async, destination, source, size_bytes, kind, stream);
}
cudaError_t memset_async(void *data, int value, size_t size_bytes, cudaStream_t stream) {
    return EBB_PASS_ON(memset_async, memset_async, data, value, size_bytes, stream);
}

cudaError_t stream_create_with_flags(cudaStream_t *stream, unsigned flags) {
    return EBB_PASS_ON(stream_create_with_flags, stream_create, stream, flags);
}
cudaError_t stream_destroy(cudaStream_t stream) {
    return EBB_PASS_ON(stream_destroy, stream_destroy, stream);
}
cudaError_t stream_query(cudaStream_t stream) {
    return EBB_PASS_ON(stream_query, stream_query, stream);
}
cudaError_t stream_synchronize(cudaStream_t stream) {
    return EBB_PASS_ON(stream_synchronize, stream_synchronize, stream);
}
cudaError_t stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    return EBB_PASS_ON(stream_wait_event, stream_wait_event, stream, event, flags);
}
cudaError_t event_create_with_flags(cudaEvent_t *event, unsigned flags) {
    return EBB_PASS_ON(event_create_with_flags, event_create, event, flags);
}
cudaError_t event_destroy(cudaEvent_t event) {
    return EBB_PASS_ON(event_destroy, event_destroy, event);
}
cudaError_t event_record(cudaEvent_t event, cudaStream_t stream) {
    return EBB_PASS_ON(event_record, event_record, event, stream);
}
cudaError_t event_query(cudaEvent_t event) {
    return EBB_PASS_ON(event_query, event_query, event);
}
cudaError_t event_synchronize(cudaEvent_t event) {
    return EBB_PASS_ON(event_synchronize, event_synchronize, event);
}

cudaError_t stream_begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    return EBB_PASS_ON(stream_begin_capture, begin_capture, stream, mode);
}
cudaError_t stream_end_capture(cudaStream_t stream, cudaGraph_t *graph) {
    return EBB_PASS_ON(stream_end_capture, end_capture, stream, graph);
}
cudaError_t stream_is_capturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    return EBB_PASS_ON(stream_is_capturing, capture_info, stream, status, nullptr);
}
cudaError_t graph_instantiate(cudaGraphExec_t *exec, cudaGraph_t graph) {
    return EBB_PASS_ON(graph_instantiate, graph_instantiate, exec, graph);
}
cudaError_t graph_launch(cudaGraphExec_t exec, cudaStream_t stream) {
    return EBB_PASS_ON(graph_launch, graph_launch, exec, stream);
}
cudaError_t graph_exec_destroy(cudaGraphExec_t exec) {
    return EBB_PASS_ON(graph_exec_destroy, graph_exec_destroy, exec);
}
cudaError_t graph_destroy(cudaGraph_t graph) {
    return EBB_PASS_ON(graph_destroy, graph_destroy, graph);
}

template <class Change>
cudaError_t change_words(const char *name, cudaStream_t stream, void *data, size_t size_bytes, const Change &change) {
    const auto run = [=] {
        auto *words = static_cast<uint64_t *>(data);
        for (uint64_t word = 0; word < size_bytes / sizeof *words; ++word) {
            words[word] = change(words[word], word);
        }
    };
    return current_cuda_double().call_of_user(name, [&](call &c) {
        return current_cuda_double().launch(c, stream, name, {{data, size_bytes, true}}, run);
    });
}

cudaError_t launch_fill(cudaStream_t stream, void *data, size_t size_bytes, uint64_t seed) {
    return change_words("launch_fill", stream, data, size_bytes,
                        [seed](uint64_t, uint64_t word) { return filled_word(seed, word); });
}
cudaError_t launch_add(cudaStream_t stream, void *data, size_t size_bytes, uint64_t value) {
    return change_words("launch_add", stream, data, size_bytes,
                        [value](uint64_t was, uint64_t) { return was + value; });
}
cudaError_t launch_xor(cudaStream_t stream, void *data, size_t size_bytes, uint64_t value) {
    return change_words("launch_xor", stream, data, size_bytes,
                        [value](uint64_t was, uint64_t) { return was ^ value; });
}

// Several may count into the same word at once: the addition is atomic.
cudaError_t launch_compare(cudaStream_t stream, const void *data, size_t size_bytes, uint64_t seed, uint32_t *wrong) {
    const auto run = [=] {
        const auto *words = static_cast<const uint64_t *>(data);
        uint32_t found = 0;
        for (uint64_t word = 0; word < size_bytes / sizeof *words; ++word) {
            found += words[word] == filled_word(seed, word) ? 0 : 1;
        }
        __atomic_fetch_add(wrong, found, __ATOMIC_RELAXED);
    };
    return current_cuda_double().call_of_user("launch_compare", [&](call &c) {
        return current_cuda_double().launch(c, stream, "launch_compare",
                                            {{data, size_bytes, false}, {wrong, sizeof *wrong, false}}, run);
    });
}

cudaError_t launch_wait(cudaStream_t stream, const uint32_t *flag) {
    const auto run = [=] {
        constexpr std::chrono::microseconds k_nap(50);
        while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) == 0) {
            std::this_thread::sleep_for(k_nap);
        }
    };
    return current_cuda_double().call_of_user("launch_wait", [&](call &c) {
        return current_cuda_double().launch(c, stream, "launch_wait", {{flag, sizeof *flag, false}}, run,
                                            work_kind::may_stand);
    });
}

#undef EBB_PASS_ON

cuda_user make_table() {
    cuda_user table{};
    table.get_device = get_device;
    table.set_device = set_device;
    table.device_synchronize = device_synchronize;
    table.get_last_error = get_last_error;
    table.peek_at_last_error = peek_at_last_error;
    table.mem_get_info = mem_get_info;
    table.malloc = malloc_device;
    table.free = free_device;
    table.host_alloc = host_alloc;
    table.free_host = free_host;
    table.memcpy = memcpy_now;
    table.memcpy_async = memcpy_async;
    table.memset_async = memset_async;
    table.stream_create_with_flags = stream_create_with_flags;
    table.stream_destroy = stream_destroy;
    table.stream_query = stream_query;
    table.stream_synchronize = stream_synchronize;
    table.stream_wait_event = stream_wait_event;
    table.event_create_with_flags = event_create_with_flags;
    table.event_destroy = event_destroy;
    table.event_record = event_record;
    table.event_query = event_query;
    table.event_synchronize = event_synchronize;
    table.stream_begin_capture = stream_begin_capture;
    table.stream_end_capture = stream_end_capture;
    table.stream_is_capturing = stream_is_capturing;
    table.thread_exchange_stream_capture_mode = thread_exchange_stream_capture_mode;
    table.graph_instantiate = graph_instantiate;
    table.graph_launch = graph_launch;
    table.graph_exec_destroy = graph_exec_destroy;
    table.graph_destroy = graph_destroy;
    table.launch_fill = launch_fill;
    table.launch_add = launch_add;
    table.launch_xor = launch_xor;
    table.launch_compare = launch_compare;
    table.launch_wait = launch_wait;
    return table;
}

}  // namespace

const cuda_user &cuda_double::user() {
    static const cuda_user k_table = make_table();
    return k_table;
}

}  // namespace ebb::test
