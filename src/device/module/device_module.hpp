// The border between libebb and a device in a library of its own (libebb_cuda): one exported C function gives a table
// of C functions. No C++ class crosses it, and nothing is thrown across it. What a call answers is the number of a
// status's code; the text of one that is not ok is asked for afterwards, so that success costs nothing.
#pragma once

#include <cstdint>

namespace ebb {

// Changes with every change below: both libraries come from one build.
constexpr uint32_t k_device_module_version = 2;

// What kind of machine the module finds itself on.
struct module_driver {
    int32_t driver_version;   // as CUDA writes it: 13000 is 13.0; 0: no driver is installed
    int32_t runtime_version;  // that the module was built with
    int32_t device_count;
};

struct module_options {
    const char *system_root;
    uint32_t prefault_threads;
    int32_t ordinal;
    int32_t calibrate;
    int32_t nvtx;
};

// device_info without what has a constructor.
struct module_device_info {
    int32_t type;
    int32_t integrated;
    int32_t captures;
    uint64_t default_chunk_bytes;
    uint64_t slab_bytes;
    uint64_t d2h_bytes_per_second;
    uint64_t h2d_bytes_per_second;
    uint64_t d2h_beside_h2d_bytes_per_second;
    uint64_t h2d_beside_d2h_bytes_per_second;
};

struct device_module {
    uint32_t version;
    // Of the calling thread's last call that was not ok; valid until its next one.
    const char *(*last_text)();

    const void *context;  // of the two below
    // Not ok when a driver is there and cannot be used; *found is filled in as far as is known.
    int32_t (*probe)(const void *context, module_driver *found);
    // `note` is called with what a user should be told, during the call.
    int32_t (*make)(const void *context, const module_options *options, void (*note)(void *, const char *),
                    void *note_context, void **device, module_device_info *info);
    void (*destroy)(void *device);

    // device.hpp's calls.
    int32_t (*alloc_device)(void *device, uint64_t size_bytes, void **data);
    int32_t (*free_device)(void *device, void *data, uint64_t size_bytes);
    void (*memory)(void *device, uint64_t *capacity_bytes, uint64_t *free_bytes);
    int32_t (*map_host)(void *device, uint64_t size_bytes, void **data);
    int32_t (*unmap_host)(void *device, void *data, uint64_t size_bytes);
    uint64_t (*host_room_bytes)(void *device);
    int32_t (*create_stream)(void *device, int32_t role, uint64_t *stream);
    int32_t (*destroy_stream)(void *device, uint64_t stream);
    int32_t (*check_stream)(void *device, uint64_t stream);
    int32_t (*create_event)(void *device, int32_t kind, uint64_t *event);
    int32_t (*destroy_event)(void *device, uint64_t event);
    int32_t (*record_event)(void *device, uint64_t event, uint64_t stream);
    int32_t (*wait_event)(void *device, uint64_t stream, uint64_t event);
    int32_t (*event_done)(void *device, uint64_t event, int32_t *done);
    int32_t (*synchronize_event)(void *device, uint64_t event);
    int32_t (*elapsed_ns)(void *device, uint64_t start, uint64_t end, uint64_t *ns);
    int32_t (*copy)(void *device, uint64_t stream, int32_t direction, void *destination, const void *source,
                    uint64_t size_bytes);
    // `pieces` are copy_piece of device.hpp.
    int32_t (*copy_pieces)(void *device, uint64_t stream, int32_t direction, const void *pieces, uint32_t count);
    int32_t (*checksum)(void *device, uint64_t stream, const void *data, uint64_t size_bytes, uint64_t *accumulator);
    int32_t (*capture_of)(void *device, uint64_t stream, uint64_t *capture);
    void (*begin_range)(void *device, const char *what, const char *name, uint64_t size_bytes);
    void (*end_range)(void *device);
};

// The exported function's type and name.
using device_module_function = const device_module *(*)();
constexpr const char *k_cuda_module_symbol = "ebb_cuda_module";

}  // namespace ebb
