/* Ebb: moves activations out of device memory in the forward pass and brings them back before the backward
 * pass needs them. This header is the manual of the C ABI (C11). SPDX-License-Identifier: Apache-2.0
 *
 * One activation's life, borrow form:
 *
 *     ebb_offload      the caller hands over memory, its producer stream and a deleter. Ebb copies it to pinned
 *                      host memory behind the producer, and when device memory is wanted makes the home stream
 *                      wait for that copy and runs the deleter ("the source is given up").
 *     ebb_reload       gives back a pointer and a claim. The consumer stream waits until the bytes are there.
 *     ebb_return       ends the claim: the memory may be reused behind the named stream.
 *     ebb_release      ends the activation.
 *
 * Rules that hold for every function
 * - Status: all but ebb_status_name, ebb_last_error and ebb_build_info return an ebb_status. On anything but
 *   EBB_OK the calling thread's ebb_last_error() says what, how much and what to do; out parameters are then
 *   untouched. Failures in the background (a copy, a checksum, a stale ebb_drop) stay on the runtime: the next
 *   ebb_step, ebb_reload, ebb_reload_into, ebb_reload_dlpack, ebb_wait, ebb_wait_room, ebb_progress or
 *   ebb_runtime_close returns the first of them, once; never as EBB_INVALID_ARGUMENT, EBB_WRONG_STATE or EBB_BUSY,
 *   which are about the call itself. The call may then be made again: it has done nothing else, or, if it is ebb_progress,
 *   ebb_wait or ebb_wait_room, perhaps all of its work. But for close, which closes all the same.
 * - Structs start with struct_size = sizeof(the struct). They grow at the end only; zero in a field means its
 *   default. A struct larger than this library knows must have only zeros in the unknown tail. Of structs that Ebb
 *   fills only struct_size is read, and an unknown tail stays as it was.
 * - Streams are 64-bit numbers: EBB_STREAM_DEFAULT, EBB_STREAM_LEGACY, EBB_STREAM_PER_THREAD, EBB_STREAM_CALLING_THREAD,
 *   or the device's own (a cudaStream_t's value; ebb_host_stream_create). Every call names its streams, none is
 *   remembered beyond the activation it was named for: the caller keeps a stream alive until that activation is
 *   released and, if it was released through ebb_drop or a DLPack deleter, until the next call. It is idle when it is
 *   destroyed: a stream that has the same number later is taken for the same one. Ebb never destroys, synchronises or changes
 *   a caller's stream.
 * - EBB_STREAM_PER_THREAD is the stream of the thread that calls: it is for runtimes that one thread alone calls, and refused from
 *   another.
 * - EBB_STREAM_CALLING_THREAD is for callers that compute on the thread itself. As producer: the bytes are there. As
 *   consumer: call ebb_wait before reading, but for what a thread offloaded by ebb_offload_staged. As home: sources are
 *   given up by the same counts, their deleters run once the copy is done, in a later call on any thread or in
 *   ebb_wait_room, which blocks for it. As last stream of a return: the last use is over.
 * - No call waits for the device except ebb_runtime_create, ebb_runtime_close, ebb_host_stream_destroy, the functions named
 *   wait or synchronize, and the ebb_step that ends the first recorded step, where staging is taken. While sizes grow, a
 *   call may take the time of an allocation: an offload where it needs more pinned memory than there ever was, a reload
 *   until staging is taken.
 * - Thread-safety: every function may be called from any thread at any time, also on one runtime; calls on one
 *   runtime are taken one after the other. ebb_runtime_close must be the last call on its runtime. The scope
 *   stack belongs to (runtime, thread).
 * - Callbacks (deleters, allocators, log and text sinks) run only inside a caller's call, with no lock held,
 *   and may call Ebb again, except to close their runtime. They must not throw.
 * - Sizes are bytes, times nanoseconds, rates bytes per second.
 */
#ifndef EBB_EBB_H
#define EBB_EBB_H

#include <stddef.h>
#include <stdint.h>

#if !defined(EBB_API)
#if defined(_WIN32)
#define EBB_API __declspec(dllimport)
#else
#define EBB_API __attribute__((visibility("default")))
#endif
#endif

#define EBB_VERSION_MAJOR 0
#define EBB_VERSION_MINOR 1
#define EBB_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------- status -- */

/* The list is frozen: numbers never change, new ones are appended. */
typedef int32_t ebb_status;
enum {
    EBB_OK = 0,
    EBB_INVALID_ARGUMENT = 1,      /* an argument cannot be right; nothing was done */
    EBB_STALE_HANDLE = 2,          /* the activation or claim ended before, or never was */
    EBB_WRONG_STATE = 3,           /* the call does not fit what happened before */
    EBB_NO_SLOT = 4,               /* no staging room: return a claim, or use ebb_reload_into */
    EBB_RECOMPUTE = 5,             /* placement is recompute: the caller computes it again */
    EBB_OUT_OF_DEVICE_MEMORY = 6,
    EBB_OUT_OF_HOST_MEMORY = 7,    /* pinned cap, refused pinning, or the control group's limit */
    EBB_BUSY = 8,                  /* live activations at close */
    EBB_DEVICE_ERROR = 9,          /* the device refused a call; the text has its reason */
    EBB_DATA_MISMATCH = 10,        /* verify mode: a checksum differs */
    EBB_UNSUPPORTED = 11,          /* not on this device, or not in this build */
    EBB_INTERNAL = 12              /* an exception (no heap memory is one) or a broken invariant of ours: please report
                                      it. An offload has taken nothing; after any other call close the runtime */
};

/* The constant's name ("EBB_NO_SLOT"), or "EBB_UNKNOWN_STATUS". Never null. */
EBB_API const char *ebb_status_name(ebb_status status);
/* Why the calling thread's last failing call failed; "" when none has. Calls that succeed leave it. Valid until the
 * thread's next call. */
EBB_API const char *ebb_last_error(void);
/* Version, compiler, build type and the devices built in, on one line. */
EBB_API const char *ebb_build_info(void);

/* ----------------------------------------------------------------------------------------- identifiers -- */

typedef struct ebb_runtime ebb_runtime; /* opaque; one device each */
typedef uint64_t ebb_activation;        /* index and generation; 0 is never one, another runtime's is stale */
typedef uint64_t ebb_claim;             /* one reload that was not returned yet; 0 is never one */
typedef uint64_t ebb_stream;

#define EBB_STREAM_DEFAULT ((ebb_stream)0)
#define EBB_STREAM_LEGACY ((ebb_stream)1)
#define EBB_STREAM_PER_THREAD ((ebb_stream)2)
#define EBB_STREAM_CALLING_THREAD (~(ebb_stream)0)

/* --------------------------------------------------------------------------------------------- options -- */

/* Stream-ordered allocator lent for staging (RMM's and PyTorch's shape). `home` is the home stream of the
 * activation that the memory is for: the memory may be used behind that stream's point at the allocation,
 * and after free behind its point then; with EBB_STREAM_CALLING_THREAD it is free when free is called. Memory is
 * aligned to `alignment` (512), else it is given back and the next call that reports says so. alloc returns null
 * to refuse: unclaimed prefetches are dropped and it is asked once more, then the reload is EBB_NO_SLOT. With
 * staging_bytes, what was asked for and not freed yet is never more than that. Everything is freed at close at the latest.
 * available_bytes may be null; it says what could be allocated now and is asked when the device budget is learned. */
typedef struct ebb_allocator {
    void *(*alloc)(void *context, uint64_t size_bytes, uint64_t alignment, ebb_stream home);
    void (*free)(void *context, void *data, uint64_t size_bytes, ebb_stream home);
    uint64_t (*available_bytes)(void *context);
    void *context;
} ebb_allocator;

typedef int32_t ebb_log_level;
enum { EBB_LOG_DEFAULT = 0, EBB_LOG_ERROR = 1, EBB_LOG_WARNING = 2, EBB_LOG_INFO = 3, EBB_LOG_DEBUG = 4 };
/* So far Ebb writes warnings only: nothing at EBB_LOG_ERROR, and nothing more at EBB_LOG_INFO and EBB_LOG_DEBUG. */

/* One line, without a newline. */
typedef void (*ebb_log_sink)(void *context, ebb_log_level level, const char *line);

typedef int32_t ebb_switch;
enum { EBB_SWITCH_DEFAULT = 0, EBB_OFF = 1, EBB_ON = 2 };

/* Prefetch depth: how far reloads run ahead of their use. */
#define EBB_PREFETCH_AUTO ((uint64_t)0)            /* as deep as the device budget allows (default) */
#define EBB_PREFETCH_NONE (~(uint64_t)0)           /* no prefetch: a reload is copied when it is asked for */
#define EBB_PREFETCH_LAYER (~(uint64_t)0 - 1)      /* the uses of one layer (one scope) ahead */

/* Cap on the bytes of sources that were not given up yet. */
#define EBB_SOURCES_AUTO ((uint64_t)0)             /* what the device budget allows (default) */
#define EBB_SOURCES_NONE (~(uint64_t)0)            /* given up in the offload call: compute waits for the copy */

/* Every field but the pointers staging_memory, allocator, log and log_context has an option of the same name in
 * docs/environment.md: field, then environment, then default. */
typedef struct ebb_runtime_options {
    uint64_t struct_size;
    const char *device;               /* "cuda", "host", "null", "sim" (or "sim:key=value,...", see docs/devices.md) or
                                         "auto" (default: the GPU; "host" only where no NVIDIA driver is installed) */
    int32_t device_ordinal;           /* which device of that kind */
    uint32_t lanes;                   /* copy streams per direction, 1 to 8; default 1 */
    uint64_t device_budget_bytes;     /* target for kept activations + sources not given up + staging; default learned */
    uint64_t staging_bytes;           /* cap of the memory that reloads go to, up to 1 TiB; default a share of the device budget */
    uint64_t max_activation_bytes;    /* largest activation that will be offloaded; default learned in the first step */
    uint64_t host_bytes;              /* cap of pinned memory; default what the control group's and system's limits leave at
                                         create, divided by host_processes */
    uint64_t min_offload_bytes;       /* floor: smaller ones are kept; default 1 MiB; 1 for none */
    const char *policy;               /* "auto" (default), "offload", "keep", or "pattern=value,...": see docs/concepts.md.
                                         Values remat, device, offload as in MaxText, and auto; the first match counts */
    uint64_t keep_last;               /* keep an activation when fewer than this many younger ones are produced
                                         before its use: "the last k" of a forward pass; default 0 */
    uint64_t prefetch_bytes;          /* depth in bytes, or one of EBB_PREFETCH_* */
    uint64_t source_bytes;            /* cap in bytes, or one of EBB_SOURCES_* */
    uint64_t chunk_bytes;             /* copies are cut into chunks of this size; default the device's */
    uint32_t sample_every;            /* measure exposed time in one step of this many; default 16 */
    ebb_switch verify;                /* checksums at offload, after the copy and after the reload; default off */
    void *staging_memory;             /* lent device memory of staging_bytes, aligned to 512; null: our own */
    const ebb_allocator *allocator;   /* lent allocator for staging, instead of a block; copied at create */
    ebb_log_sink log;                 /* null: standard error */
    void *log_context;
    ebb_log_level log_level;          /* default EBB_LOG_WARNING */
    uint32_t host_processes;          /* that share this host's memory; default 1 */
    /* The host device only. */
    uint64_t host_device_bytes;       /* capacity of its device arena; default 1 GiB, or half of what memory
                                         limits leave where that is less */
    uint64_t host_d2h_bytes_per_second; /* rate limit of its link; default none */
    uint64_t host_h2d_bytes_per_second;
    const char *record;               /* file that the recorded step is written to as JSON, once its times are measured, and
                                         at the latest at close; null: none */
    /* The CUDA device only. */
    ebb_switch calibrate;             /* measure the link's rates at create; default off */
    ebb_switch nvtx;                  /* ranges for a profiler; default off */
    const char *cuda_library;         /* file of the backend; null: libebb_cuda.so beside libebb */
} ebb_runtime_options;

/* ------------------------------------------------------------------------------------ runtime and steps -- */

/* `options` may be null (all defaults). A malformed option or EBB_ variable fails and is named. May block. */
EBB_API ebb_status ebb_runtime_create(const ebb_runtime_options *options, ebb_runtime **runtime);

/* Waits for copies and frees everything. With live activations: EBB_BUSY, one of them named, and the runtime lives
 * on; with EBB_CLOSE_FORCE they are ended, and each deleter that has not run runs (it cannot offload any more). Memory of
 * claims still out is freed: it must not be used any more. From inside a callback of this runtime: EBB_WRONG_STATE; with a
 * flag that is none: EBB_INVALID_ARGUMENT. After these three the runtime lives on; after any other status, EBB_OK or what failed
 * in the background, it is gone. A null runtime is EBB_OK. */
enum { EBB_CLOSE_DEFAULT = 0, EBB_CLOSE_FORCE = 1 };
EBB_API ebb_status ebb_runtime_close(ebb_runtime *runtime, uint32_t flags);

/* Begins a step and ends the one before it. A training step is one optimizer step, with all its
 * micro-batches. The first complete one is recorded (names, order, sizes); later ones are matched against it and
 * prefetched. Evaluation neither reads nor changes the record, and what the policy would offload is kept there while it
 * fits the device budget, once that is known. Before the first ebb_step nothing is recorded or prefetched either. */
typedef int32_t ebb_phase;
enum { EBB_PHASE_TRAIN = 1, EBB_PHASE_EVALUATE = 2 };
EBB_API ebb_status ebb_step(ebb_runtime *runtime, ebb_phase phase);

/* Names nest: an activation "gate" offloaded under scopes "decoder" and "layer.3" is "decoder/layer.3/gate".
 * The innermost scope is what EBB_PREFETCH_LAYER calls a layer. Non-empty, up to 255 bytes;
 * "decoder/layer.3" stands for two scopes, and is popped at once. */
EBB_API ebb_status ebb_scope_push(ebb_runtime *runtime, const char *name);
EBB_API ebb_status ebb_scope_pop(ebb_runtime *runtime);

/* -------------------------------------------------------------------------------------------- activations -- */

typedef int32_t ebb_placement;
enum {
    EBB_PLACE_BY_POLICY = 0, /* as argument only */
    EBB_PLACE_KEEP = 1,
    EBB_PLACE_OFFLOAD = 2,
    EBB_PLACE_RECOMPUTE = 3
};

/* Why an activation was kept. */
typedef int32_t ebb_reason;
enum {
    EBB_REASON_NONE = 0,             /* it was not kept */
    EBB_REASON_POLICY = 1,           /* the policy or the caller says so */
    EBB_REASON_FLOOR = 2,            /* smaller than min_offload_bytes */
    EBB_REASON_LAST = 3,             /* one of the last keep_last */
    EBB_REASON_NOT_RECOMPUTABLE = 4, /* the policy says remat, and the caller did not say how */
    EBB_REASON_HOST_CAP = 5,         /* host_bytes reached: wanted, held */
    EBB_REASON_PINNING = 6,          /* pinning was refused */
    EBB_REASON_COPY_ERROR = 7,       /* the device refused the copy */
    EBB_REASON_LARGER_THAN_SLOT = 8, /* larger than staging can ever hold */
    EBB_REASON_INTEGRATED = 9,       /* device memory is host memory: copying cannot pay */
    EBB_REASON_EVALUATION = 10,      /* evaluation, and it fits the device budget */
    EBB_REASON_PLAN = 11,            /* the plan of automatic mode keeps it */
    EBB_REASON_CAPTURE = 12          /* a capture goes on, while which no memory is pinned, and there is none */
};

enum {
    EBB_OFFLOAD_CAN_RECOMPUTE = 1u << 0 /* the caller can compute it again; see recompute_from */
};

typedef struct ebb_offload_args {
    uint64_t struct_size;
    const char *name;               /* non-empty, up to 255 bytes; with the scopes it names the activation: "layer.3/gate" is
                                     * "gate" under one scope more */
    void *data;                     /* device memory; may be null when size_bytes is 0 */
    uint64_t size_bytes;
    int32_t device_type;            /* DLPack's number of the memory's device; 0: the runtime's */
    int32_t device_ordinal;         /* of device_type; not read when that is 0 */
    const ebb_stream *producers;    /* the streams that write it, 1 to 64 */
    uint64_t producer_count;
    const ebb_stream *home;         /* where the memory will be reused; null: the first producer */
    void (*deleter)(void *context); /* runs exactly once, when the memory may be reused behind the home stream;
                                       may be null */
    void *deleter_context;
    uint64_t micro_batch;           /* tell apart same-named activations of one step */
    uint64_t stage;                 /* virtual pipeline stage */
    uint64_t storage_id;            /* 0: none. With storage_version it says that saves of one id and version are
                                       ranges of the same unchanged storage: a save inside a range that is
                                       already copied shares the copy */
    uint64_t storage_version;
    uint32_t flags;                 /* EBB_OFFLOAD_* */
    ebb_placement placement;        /* EBB_PLACE_BY_POLICY, or what the caller wants, whatever policy and floor say;
                                       RECOMPUTE needs the flag */
    const ebb_activation *recompute_from; /* activations that recomputing reads; they live until this is released */
    uint64_t recompute_from_count;
    uint64_t recompute_cost_ns;     /* what recomputing costs, for "auto", which weighs it; 0: the work that was measured before
                                       this call */
} ebb_offload_args;

typedef struct ebb_offload_info {
    uint64_t struct_size;
    ebb_activation activation;
    ebb_placement placement;        /* what was decided: KEEP, OFFLOAD or RECOMPUTE */
    ebb_reason reason;              /* why it was kept */
    uint64_t wanted_bytes;          /* with HOST_CAP, PINNING, LARGER_THAN_SLOT: what was wanted ... */
    uint64_t held_bytes;            /* ... and what was held against which cap */
    uint64_t cap_bytes;
} ebb_offload_info;

/* Borrow form. Fails on misuse, and with EBB_DEVICE_ERROR where the device refuses to mark the producer streams, so that
 * nothing could be ordered behind them; it has then taken nothing (the deleter will not run). Otherwise it gives a
 * handle, and training goes on even where copying could not: the activation is kept and info says why. */
EBB_API ebb_status ebb_offload(ebb_runtime *runtime, const ebb_offload_args *args, ebb_offload_info *info);

/* DLPack form: data, size, device and deleter come from `tensor` (DLPack 1.x, up to 16 dimensions); args->data, size_bytes,
 * deleter and deleter_context must be zero, and args->device_type is not read. The tensor must be contiguous in memory
 * as a set of bytes (any permutation of a dense one); the strides come back on reload. Takes ownership only on EBB_OK. */
struct DLManagedTensorVersioned;
EBB_API ebb_status ebb_offload_dlpack(ebb_runtime *runtime, const ebb_offload_args *args,
                                      struct DLManagedTensorVersioned *tensor, ebb_offload_info *info);

/* Staged form: the bytes are copied through Ebb's own device memory on the first producer stream, so that the caller may
 * reuse `data` behind that stream as soon as the call returns. deleter must be null. If there is no room for the staged copy:
 * EBB_NO_SLOT, and nothing was taken.
 * With EBB_STREAM_CALLING_THREAD as the only producer, on devices whose memory is the CPU's, and placement EBB_PLACE_OFFLOAD
 * the thread itself copies the bytes to pinned memory in the call, and ebb_reload_into on a thread brings them back in the
 * call: no ebb_wait. For what is small: handing a copy over costs many times as much; but other calls on the runtime wait
 * meanwhile, and all of it is exposed time. EBB_NO_SLOT where that memory is still read by a copy, EBB_OUT_OF_HOST_MEMORY
 * where there is none, EBB_UNSUPPORTED with verify: nothing was taken, and ebb_offload does it. */
EBB_API ebb_status ebb_offload_staged(ebb_runtime *runtime, const ebb_offload_args *args, ebb_offload_info *info);

typedef struct ebb_reload_info {
    uint64_t struct_size;
    ebb_claim claim;
    void *data;               /* device memory; congruent to the source's address modulo 512 */
    uint64_t size_bytes;
} ebb_reload_info;

/* Makes `consumer` wait until the bytes are on the device and claims them. May be called again before the return
 * (each claim is returned by itself) and after it (until release).
 * EBB_NO_SLOT: no room; nothing was done; ebb_reload_into always works. EBB_RECOMPUTE: the caller computes it. */
EBB_API ebb_status ebb_reload(ebb_runtime *runtime, ebb_activation activation, ebb_stream consumer,
                              ebb_reload_info *info);

/* The same into the caller's memory: written behind what is on `consumer` now, there when `consumer` goes on. `size_bytes`
 * is the activation's. No claim; where the bytes are does not change. They are those that were offloaded, also where the holder of
 * a claim has written to its slot; not where one has written to the source, which it was handed back. */
EBB_API ebb_status ebb_reload_into(ebb_runtime *runtime, ebb_activation activation, void *data,
                                   uint64_t size_bytes, ebb_stream consumer);

/* The same as a DLPack tensor with the shape, strides and dtype of the offloaded one (a byte vector when it was not
 * offloaded from DLPack). Its deleter returns the claim; it may run on any thread at any time, also after close, and
 * counts as a return on the consumer stream. */
EBB_API ebb_status ebb_reload_dlpack(ebb_runtime *runtime, ebb_activation activation, ebb_stream consumer,
                                     struct DLManagedTensorVersioned **tensor);

/* Declares a further stream that reads what the claim gave: it waits for the bytes like the consumer. Up to 8 of them, more
 * are EBB_UNSUPPORTED; not the calling thread, which uses ebb_wait. */
EBB_API ebb_status ebb_use(ebb_runtime *runtime, ebb_claim claim, ebb_stream stream);

/* Ends the claim. The memory is reused behind what is now on `last`, and on the streams of ebb_use. When it fails the claim
 * is still held. */
EBB_API ebb_status ebb_return(ebb_runtime *runtime, ebb_claim claim, ebb_stream last);

/* Ends the activation. A source that was not given up is given up now; claims still out keep their memory. An activation that others
 * recompute from stays, handle and all, until they are released; releasing it again meanwhile is EBB_WRONG_STATE. */
EBB_API ebb_status ebb_release(ebb_runtime *runtime, ebb_activation activation);

/* ebb_release for garbage collectors: from any thread, at any time; only queues. The next call does the work, and a handle
 * that turns out stale then is a failure in the background. */
EBB_API ebb_status ebb_drop(ebb_runtime *runtime, ebb_activation activation);

/* Blocks until the bytes of the last reload are on the device (for EBB_STREAM_CALLING_THREAD as consumer). */
EBB_API ebb_status ebb_wait(ebb_runtime *runtime, ebb_activation activation);

/* Blocks until the copies of all given-up sources whose home is the calling thread are done, and runs their deleters. */
EBB_API ebb_status ebb_wait_room(ebb_runtime *runtime);

/* Between these, reloads are marked and not compared with the record, and `size_bytes` of the device budget are the caller's:
 * unclaimed prefetches are dropped to make room. They do not nest; ebb_step ends one. */
EBB_API ebb_status ebb_recompute_begin(ebb_runtime *runtime, uint64_t size_bytes);
EBB_API ebb_status ebb_recompute_end(ebb_runtime *runtime);

/* Around the enqueueing of a collective on `stream` that wants the links to itself; `size_bytes` is what it moves. No copy of
 * an offload or prefetch asked for in between starts before the point of `stream` at the end, but for what somebody waits for:
 * a source whose memory is needed, and a reload without prefetch, are copied at once. Collectives of different streams may overlap, those of one
 * stream may not: beginning twice, or ending what was not begun, is EBB_WRONG_STATE. When ebb_collective_end fails otherwise, the
 * collective is over all the same. Steps do not end it. They serve for any span of a stream that wants the links or HBM to itself, such
 * as memory-bound kernels: give 0 as size_bytes then. */
EBB_API ebb_status ebb_collective_begin(ebb_runtime *runtime, ebb_stream stream, uint64_t size_bytes);
EBB_API ebb_status ebb_collective_end(ebb_runtime *runtime, ebb_stream stream);

/* CUDA graphs. Calls that name a stream in a capture become part of it: their copies go to streams of Ebb's that fork
 * from the capture at its first call, with the addresses of that time, and run at each launch. All streams of a call are
 * part of the same capture, or none is. The last call in a capture, before the caller ends it, is
 * ebb_graph_join: `stream`, which is part of it, then comes behind all of that, and *graph is the handle of its memory.
 * - Blocks and slots that were used in a capture belong to its graph until ebb_graph_release, which is called when no launch of
 *   it is under way or will come; ebb_statistics counts them. Releasing an activation before ends its handle only.
 * - Graphs are launched in the order in which they were captured: offload in one and reload in a later one. Calls outside of
 *   captures may use what was offloaded in one, on a stream that comes behind its launch, and return their claims before the
 *   next launch: bytes of one launch are not those of the next, and a capture that asks for them meanwhile is EBB_WRONG_STATE.
 * - In a capture nothing is measured and the step is not recorded; it follows the plan as it stands. Copies are not held for
 *   collectives. While one is open, Ebb allocates, pins and frees nothing, on any thread: run a step without capturing
 *   first. A lent allocator is asked all the same, and keeps what a capture has used until ebb_graph_release. Work of Ebb's that a capture would have to come behind must be over: synchronize the device before it begins.
 * - EBB_WRONG_STATE or EBB_UNSUPPORTED says that something cannot be part of a capture (verify mode, say), before it has harmed it. A
 *   capture that ends without a join leaves nothing: what was offloaded in it cannot be reloaded.
 * - With captures or graphs that were not released, ebb_runtime_close is EBB_BUSY, unless forced.
 * EBB_UNSUPPORTED on devices without graphs. */
typedef uint64_t ebb_graph; /* 0 is never one */
EBB_API ebb_status ebb_graph_join(ebb_runtime *runtime, ebb_stream stream, ebb_graph *graph);
EBB_API ebb_status ebb_graph_release(ebb_runtime *runtime, ebb_graph graph);

/* Reads timings and runs deleters that are due. Never needed for correctness; changes no decision. */
EBB_API ebb_status ebb_progress(ebb_runtime *runtime);

/* ---------------------------------------------------------------------------------------------- reports -- */

typedef struct ebb_statistics {
    uint64_t struct_size;
    uint64_t steps;                   /* training steps ended */
    uint64_t sampled_steps;           /* of them, with exposed time measured */
    uint64_t live_activations;
    uint64_t offload_calls;
    uint64_t kept_count, offloaded_count, recompute_count;  /* decisions */
    uint64_t forwarded_count;         /* handed back before the source was given up */
    uint64_t reloads_prefetched;      /* reloads whose copy had been issued ahead */
    uint64_t reloads_on_demand;       /* issued in the reload call */
    uint64_t prefetches_dropped;
    uint64_t no_slot_count;
    uint64_t d2h_bytes, h2d_bytes;    /* copied */
    uint64_t given_up_bytes;          /* bytes of sources that were really given up after a copy */
    uint64_t hidden_ns, exposed_ns;   /* transfer time in the sampled steps */
    uint64_t device_held_bytes, device_peak_bytes;     /* kept + sources not given up + staging */
    uint64_t kept_bytes, source_bytes;                 /* now */
    uint64_t source_peak_bytes;
    uint64_t staging_bytes, staging_used_bytes, staging_peak_bytes;
    uint64_t pinned_bytes, pinned_used_bytes, pinned_peak_bytes; /* registered, requested, peak registered */
    uint64_t device_budget_bytes;     /* given or learned; 0 while unknown */
    uint64_t over_budget_policy_bytes, over_budget_failure_bytes, over_budget_size_bytes, over_budget_caller_bytes;
                                      /* largest excess over the budget by cause: what policy or floor keeps, failed transfers, larger
                                         than a slot, a caller that did not wait where it must */
    uint64_t order_mismatches;        /* calls that did not follow the record */
    uint64_t device_allocations;      /* calls to the device's allocator since create */
    uint64_t graphs;                  /* captures and graphs that were not released */
    uint64_t graph_pinned_bytes, graph_staging_bytes; /* that belong to them, of pinned_used_bytes and staging_used_bytes */
} ebb_statistics;

EBB_API ebb_status ebb_stats(ebb_runtime *runtime, ebb_statistics *statistics);

/* A report by name: bytes, placements, hidden and exposed time with the number of sampled steps, policy
 * patterns that no name matched and names that no pattern matched, peaks. The sink is called with pieces of it in order. */
typedef int32_t ebb_report_format;
enum { EBB_REPORT_TEXT = 1, EBB_REPORT_JSON = 2 };
typedef void (*ebb_text_sink)(void *context, const char *text, uint64_t size_bytes);
EBB_API ebb_status ebb_report_write(ebb_runtime *runtime, ebb_report_format format, ebb_text_sink sink,
                                    void *context);

/* ------------------------------------------------------------------------------------ records and plans -- */

/* The recorded step as JSON, in one piece or several in order: tensors by name, what is computed again from what, produce
 * and use calls in their order, and the work between them in nanoseconds once it was measured (0 before). Every command of the program
 * ebb reads it as a model. Before the first training step has ended: EBB_WRONG_STATE. */
EBB_API ebb_status ebb_record_export(ebb_runtime *runtime, ebb_text_sink sink, void *context);

/* The plan that is followed, as JSON: what is kept, offloaded or computed again, by name, micro-batch and stage, and the size of
 * staging. EBB_WRONG_STATE while there is none: what the policy leaves open ("auto") is planned once three steps were measured. */
EBB_API ebb_status ebb_plan_export(ebb_runtime *runtime, ebb_text_sink sink, void *context);

/* Follows that plan from the next ebb_step on, instead of making one: for what the policy leaves open. It must be for all
 * activations of the recorded step, which the text names otherwise (EBB_INVALID_ARGUMENT); before the first training step has
 * ended: EBB_WRONG_STATE. Where the step changes so that another one is recorded, it is dropped. */
EBB_API ebb_status ebb_plan_import(ebb_runtime *runtime, const char *text, uint64_t size_bytes);

/* --------------------------------------------------------------------------------------- the host device -- */

/* Streams (real threads), memory and launches of the host device; EBB_UNSUPPORTED on others. A launched function runs on
 * the stream's thread, in order, and must not call Ebb. */
EBB_API ebb_status ebb_host_stream_create(ebb_runtime *runtime, ebb_stream *stream);
EBB_API ebb_status ebb_host_stream_destroy(ebb_runtime *runtime, ebb_stream stream); /* blocks until it is empty */
EBB_API ebb_status ebb_host_stream_synchronize(ebb_runtime *runtime, ebb_stream stream);
EBB_API ebb_status ebb_host_launch(ebb_runtime *runtime, ebb_stream stream, void (*function)(void *argument),
                                   void *argument);
/* From the device arena, aligned to 512 bytes; EBB_OUT_OF_DEVICE_MEMORY beyond its capacity. Freeing is immediate:
 * reuse on the same stream needs no wait, as with a stream-ordered pool. */
EBB_API ebb_status ebb_host_alloc(ebb_runtime *runtime, uint64_t size_bytes, void **data);
EBB_API ebb_status ebb_host_free(ebb_runtime *runtime, void *data);
/* Capacity, bytes allocated now and their peak since create (staging included). Any out pointer may be null. */
EBB_API ebb_status ebb_host_memory(ebb_runtime *runtime, uint64_t *capacity_bytes, uint64_t *used_bytes,
                                   uint64_t *peak_bytes);

#ifdef __cplusplus
}
#endif

#endif /* EBB_EBB_H */
