// CUDA's rules as the double keeps them, one table: what holds, how the double answers a program that breaks it, and
// where CUDA says so. tests/unit/cuda_double has a test of each, named after it.
//
// How it is caught: "error" - the call fails as CUDA's would; "misuse" - it is written down and fails the test,
// whatever the call returned; "result" - the double does what the rule says, so that a program that counts on something
// else gets other bytes or another answer.
//
// Sources: RT = CUDA Runtime API reference (the module), PG = CUDA C++ Programming Guide (the section), SYNC = Runtime
// API, "API synchronization behavior"; "stricter" where the double refuses more than CUDA promises to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ebb::test {

// clang-format off
#define EBB_CUDA_RULES(X)                                                                                              \
    /* ---- events ---- */                                                                                             \
    X(wait_means_the_latest_record, "result",                                                                          \
      "A wait refers to the record that was the latest when it was called; recording again moves no earlier wait",     \
      "RT Event Management, cudaEventRecord")                                                                          \
    X(wait_needs_a_record, "misuse",                                                                                   \
      "A wait for an event that was never recorded waits for nothing",                                                 \
      "RT Event Management, cudaEventRecord (an empty set of work); stricter: regarded as misuse")                     \
    X(query_tells_not_ready, "error",                                                                                  \
      "Work that is not done is cudaErrorNotReady, which is left as the thread's last error like any other",           \
      "RT Event Management, cudaEventQuery")                                                                           \
    X(elapsed_needs_timing, "error",                                                                                   \
      "The time between two events needs both to take times, to be recorded and to be done",                           \
      "RT Event Management, cudaEventElapsedTime")                                                                     \
    X(event_on_the_streams_device, "error, misuse",                                                                    \
      "An event is recorded on streams of the device it was created on; streams of any device may wait for it",        \
      "RT Event Management, cudaEventRecord; PG Multi-Device System, Stream and Event Behavior")                       \
    X(destroyed_event_keeps_its_waits, "result",                                                                       \
      "Destroying an event does not wait, and leaves pending waits for it alone",                                      \
      "RT Event Management, cudaEventDestroy")                                                                         \
    X(handles_are_alive, "error, misuse",                                                                              \
      "A handle that was destroyed, or never was one, is used by no call",                                             \
      "RT, note on destroyed objects (undefined behaviour); stricter: always found")                                   \
    /* ---- streams ---- */                                                                                            \
    X(shared_memory_is_ordered, "misuse",                                                                              \
      "Streams that use the same memory, one of them writing, are ordered with each other",                            \
      "PG Asynchronous Concurrent Execution, Streams")                                                                 \
    X(legacy_waits_for_blocking_streams, "result",                                                                     \
      "Work on the legacy default stream comes behind all work enqueued before on blocking streams of its device",     \
      "SYNC, Default stream: legacy")                                                                                  \
    X(blocking_streams_wait_for_legacy, "result",                                                                      \
      "Work on a blocking stream comes behind all work enqueued before on the legacy default stream",                  \
      "SYNC, Default stream: legacy")                                                                                  \
    X(non_blocking_streams_are_apart, "result, misuse",                                                                \
      "Streams created as non-blocking are not ordered with the legacy default stream",                                \
      "RT Stream Management, cudaStreamNonBlocking")                                                                   \
    X(per_thread_stream_is_each_threads, "result",                                                                     \
      "The per-thread default stream is another one on each thread, and blocks with the legacy default stream",        \
      "SYNC, Default stream: per-thread")                                                                              \
    X(destroyed_stream_finishes, "result",                                                                             \
      "Destroying a stream does not wait, and what is enqueued on it is still done",                                   \
      "RT Stream Management, cudaStreamDestroy")                                                                       \
    /* ---- memory and copies ---- */                                                                                  \
    X(copy_direction_fits, "error, misuse",                                                                            \
      "The kind of a copy is what its pointers are",                                                                   \
      "RT Memory Management, cudaMemcpyAsync (undefined otherwise); stricter: always found")                           \
    X(copy_stays_inside, "error, misuse",                                                                              \
      "A copy, and a kernel, stays inside the memory that was allocated",                                              \
      "RT Memory Management, cudaMemcpyAsync")                                                                         \
    X(copy_in_one_registration, "error, misuse",                                                                       \
      "The host side of a copy lies in one pinned registration",                                                       \
      "RT Memory Management, cudaHostRegister; seen as cudaErrorInvalidValue in the field")                            \
    X(pageable_source_is_staged, "result, misuse",                                                                     \
      "A copy out of pageable memory has read it when the call returns, and waits for the stream if it is large",      \
      "SYNC, Memcpy; misuse where the backend does it")                                                                \
    X(pageable_destination_blocks, "result, misuse",                                                                   \
      "A copy into pageable memory returns when it is done",                                                           \
      "SYNC, Memcpy; misuse where the backend does it")                                                                \
    X(freed_memory_is_idle, "misuse",                                                                                  \
      "Memory is freed or unregistered when the host has seen that all work on it is over",                            \
      "RT Memory Management, cudaFree (it may synchronise, or not), cudaFreeHost; stricter: never relied on")          \
    X(freed_once, "error, misuse",                                                                                     \
      "Memory is freed once, by the call that fits how it was made",                                                   \
      "RT Memory Management, cudaFree, cudaFreeHost")                                                                  \
    X(registered_once, "error, misuse",                                                                                \
      "A host range is registered once at a time and unregistered once",                                               \
      "RT Memory Management, cudaHostRegister, cudaHostUnregister")                                                    \
    X(registering_may_pin_nothing, "misuse",                                                                           \
      "Where the GPU reads through the host's page tables, registered memory is not pinned, only allocated memory is", \
      "RT Memory Management, cudaHostRegister")                                                                        \
    X(no_write_combined_memory, "misuse",                                                                              \
      "Memory that the CPU reads is not write-combined",                                                               \
      "RT Memory Management, cudaHostAlloc")                                                                           \
    X(memory_of_the_current_device, "result",                                                                          \
      "cudaMalloc and cudaMemGetInfo act on the calling thread's current device; each thread has its own",             \
      "PG Multi-Device System, Device Selection")                                                                      \
    X(current_device_is_left_alone, "misuse",                                                                          \
      "Contexts are popped that were pushed, and the caller finds the current device as it was",                       \
      "CUDA Driver API, Context Management, cuCtxPushCurrent, cuCtxPopCurrent")                                        \
    X(no_context_comes_to_life, "misuse",                                                                              \
      "The backend makes no call that gives a context to a device which is current and used by nobody",                \
      "RT Initialization (the first call of a thread on its device); stricter: regarded as misuse")                    \
    X(kernel_on_the_current_device, "error, misuse",                                                                   \
      "A kernel is launched on a stream of the calling thread's current device",                                       \
      "PG Multi-Device System, Stream and Event Behavior")                                                             \
    X(kernel_memory_is_reachable, "error, misuse",                                                                     \
      "A kernel touches device memory and pinned memory only",                                                         \
      "PG Mapped Memory; without pageable memory access an illegal address")                                           \
    X(batch_has_attributes, "error, misuse",                                                                           \
      "A batch names a valid source access order for each copy: the first index is 0 and they rise",                   \
      "RT Memory Management, cudaMemcpyBatchAsync")                                                                    \
    X(batch_not_on_legacy, "error, misuse",                                                                            \
      "A batch is not enqueued on the legacy default stream",                                                          \
      "RT Memory Management, cudaMemcpyBatchAsync")                                                                    \
    X(batch_is_not_captured, "error, misuse",                                                                          \
      "A batch cannot be part of a graph",                                                                             \
      "RT Memory Management, cudaMemcpyBatchAsync; found out with 13.0")                                               \
    X(batch_has_no_order, "result, misuse",                                                                            \
      "The copies of a batch come in any order, so none may need another",                                             \
      "RT Memory Management, cudaMemcpyBatchAsync")                                                                    \
    /* ---- captures ---- */                                                                                           \
    X(unsafe_call_beside_a_global_capture, "error, misuse",                                                            \
      "While another thread captures in global mode, calls that may be unsafe fail and spoil its capture",             \
      "RT Stream Management, cudaThreadExchangeStreamCaptureMode")                                                     \
    X(unsafe_call_in_own_capture, "error, misuse",                                                                     \
      "While the calling thread captures, not in relaxed mode, calls that may be unsafe fail and spoil its capture",   \
      "RT Stream Management, cudaThreadExchangeStreamCaptureMode")                                                     \
    X(thread_local_ignores_other_threads, "result",                                                                    \
      "Captures of other threads that are not global do not forbid unsafe calls, nor do global ones to a thread in "   \
      "thread-local mode",                                                                                             \
      "RT Stream Management, cudaThreadExchangeStreamCaptureMode")                                                     \
    X(relaxed_mode_permits, "result",                                                                                  \
      "A thread in relaxed mode may make unsafe calls beside and inside captures",                                     \
      "RT Stream Management, cudaThreadExchangeStreamCaptureMode")                                                     \
    X(captured_event_is_not_asked, "error, misuse",                                                                    \
      "An event last recorded in a capture is neither queried, nor waited for by the host, nor timed",                 \
      "PG CUDA Graphs, Prohibited and Unhandled Operations")                                                           \
    X(capturing_stream_is_not_asked, "error, misuse",                                                                  \
      "A stream in a capture is neither queried nor synchronised, nor its device",                                     \
      "PG CUDA Graphs, Prohibited and Unhandled Operations")                                                           \
    X(no_legacy_beside_a_blocking_capture, "error, misuse",                                                            \
      "While a blocking stream captures, the legacy default stream is not used, nor a synchronous call",               \
      "PG CUDA Graphs, Prohibited and Unhandled Operations")                                                           \
    X(asking_legacy_spoils_nothing, "error",                                                                           \
      "Whether the legacy default stream captures cannot be asked beside a blocking capture, which stays valid",       \
      "RT Stream Management, cudaStreamIsCapturing, cudaStreamGetCaptureInfo")                                         \
    X(capture_is_isolated, "error, misuse",                                                                            \
      "A stream in a capture waits for events of the same capture only",                                               \
      "PG CUDA Graphs, Prohibited and Unhandled Operations")                                                           \
    X(waiting_joins_the_capture, "result",                                                                             \
      "A stream that waits for an event of a capture becomes part of it",                                              \
      "PG CUDA Graphs, Cross-stream Dependencies and Events")                                                          \
    X(forks_are_joined, "error, misuse",                                                                               \
      "Every stream that became part of a capture is joined to the one that began it before that ends it",             \
      "PG CUDA Graphs, Cross-stream Dependencies and Events; stricter: also where it did nothing there")               \
    X(captures_do_not_merge, "error, misuse",                                                                          \
      "A stream in one capture does not wait for an event of another; both are spoilt",                                \
      "PG CUDA Graphs, Prohibited and Unhandled Operations")                                                           \
    X(capture_ends_where_it_began, "error, misuse",                                                                    \
      "A capture ends on the stream it began on and, unless relaxed, on the same thread",                              \
      "RT Stream Management, cudaStreamEndCapture")                                                                    \
    X(capture_begins_once, "error, misuse",                                                                            \
      "A capture begins on a stream that is in none, and not on the legacy default stream",                            \
      "RT Stream Management, cudaStreamBeginCapture")                                                                  \
    X(spoilt_capture_stays_spoilt, "error",                                                                            \
      "A capture that broke a rule refuses all that follows until it is ended, and gives no graph",                    \
      "PG CUDA Graphs, Prohibited and Unhandled Operations")                                                           \
    X(capture_is_over_at_its_end, "error, misuse",                                                                     \
      "An event recorded in a capture means nothing once that has ended",                                              \
      "RT Data types, cudaErrorCapturedEvent")                                                                         \
    X(capturing_stream_is_not_destroyed, "error, misuse",                                                              \
      "A stream is not destroyed while it is part of a capture",                                                       \
      "PG CUDA Graphs, Stream Capture; stricter: always found")                                                        \
    /* ---- graphs ---- */                                                                                             \
    X(captured_work_waits_for_the_launch, "result",                                                                    \
      "Work enqueued in a capture is done when its graph is launched, each time, at the addresses it was given",       \
      "PG CUDA Graphs, Creating a Graph Using Stream Capture")                                                         \
    X(graph_keeps_dependencies_only, "result, misuse",                                                                 \
      "Nodes of a graph that do not depend on each other come in any order",                                           \
      "PG CUDA Graphs, Graph Structure")                                                                               \
    X(launch_is_in_stream_order, "result",                                                                             \
      "A launch comes behind what its stream was given before, and behind the launch before of the same graph",        \
      "RT Graph Management, cudaGraphLaunch")                                                                          \
    X(graph_memory_is_alive, "error, misuse",                                                                          \
      "The memory that a graph uses is allocated when it is launched",                                                 \
      "PG CUDA Graphs, Graph Structure; an illegal address otherwise")                                                 \
    /* ---- errors ---- */                                                                                             \
    X(last_error_is_kept, "result",                                                                                    \
      "cudaGetLastError gives a thread its last error once",                                                           \
      "RT Error Handling, cudaGetLastError")                                                                           \
    X(no_error_is_left_behind, "misuse",                                                                               \
      "Who launches a kernel looks at the last error: none may be left of an earlier call",                            \
      "PG Error Checking")                                                                                             \
    X(broken_device_stays_broken, "error",                                                                             \
      "An error of the context is returned by every later call but a few, and cudaGetLastError does not clear it",     \
      "RT Data types, cudaErrorIllegalAddress (inconsistent state); PG Error Checking")                                \
    X(no_call_after_exit_began, "error, misuse",                                                                       \
      "Once the process has begun to end, CUDA is not called",                                                         \
      "PG Initialization; cudaErrorCudartUnloading")                                                                   \
    X(all_is_given_back, "misuse",                                                                                     \
      "What the backend made, it destroys: streams, events, memory, registrations",                                    \
      "stricter: found at the end")
// clang-format on

enum class cuda_rule : uint8_t {
#define EBB_CUDA_RULE_NAME(name, caught, text, source) name,
    EBB_CUDA_RULES(EBB_CUDA_RULE_NAME)
#undef EBB_CUDA_RULE_NAME
};

struct cuda_rule_entry {
    cuda_rule rule;
    const char *name;
    const char *caught;
    const char *text;
    const char *source;
};

inline constexpr std::array k_cuda_rules = {
#define EBB_CUDA_RULE_ENTRY(name, caught, text, source) cuda_rule_entry{cuda_rule::name, #name, caught, text, source},
    EBB_CUDA_RULES(EBB_CUDA_RULE_ENTRY)
#undef EBB_CUDA_RULE_ENTRY
};

constexpr const cuda_rule_entry &entry_of(cuda_rule rule) noexcept {
    return k_cuda_rules[static_cast<size_t>(rule)];
}

}  // namespace ebb::test
