// The part of XLA's FFI that our handlers use, as its C header publishes it (xla/ffi/api/c_api.h, major version 0):
// declared here so that building needs no JAX and one build serves all versions of it. All that is used has lain where
// it lies since minor version 1 (jaxlib 0.8) and does in minor version 4 (jaxlib 0.11); a test holds it against the
// header that is installed.
#ifndef EBB_PLUGINS_XLA_FFI_TABLE_HPP
#define EBB_PLUGINS_XLA_FFI_TABLE_HPP

#include <cstddef>
#include <cstdint>

namespace ebb_jax::xla {

constexpr int k_major = 0, k_oldest_minor = 1, k_newest_minor = 4;

struct extension {
    std::size_t struct_size;
    std::int32_t type;
    extension *next;
};
constexpr std::int32_t k_metadata_extension = 1;

struct version {
    std::size_t struct_size;
    extension *extensions;
    int major, minor;
};

struct error;  // XLA's

enum class error_code : std::int32_t {
    invalid_argument = 3,
    resource_exhausted = 8,
    failed_precondition = 9,
    internal = 13,
    data_loss = 15,
};

struct error_create_args {
    std::size_t struct_size;
    extension *extensions;
    const char *message;
    error_code code;
};

struct context;  // of one execution

struct stream_get_args {
    std::size_t struct_size;
    extension *extensions;
    context *ctx;
    void *stream;  // out
};
struct run_id_get_args {
    std::size_t struct_size;
    extension *extensions;
    context *ctx;
    std::int64_t run_id;  // out
};
struct device_ordinal_get_args {
    std::size_t struct_size;
    extension *extensions;
    context *ctx;
    std::int32_t device_ordinal;  // out
};

using unused_function = void (*)();
struct api {
    std::size_t struct_size;
    extension *extensions;
    version api_version;
    const void *internal;
    error *(*error_create)(error_create_args *);
    unused_function error_text, error_destroy, handler_register;
    error *(*stream_get)(stream_get_args *);
    unused_function type_register, context_get, state_set, state_get, memory_allocate, memory_free,
        thread_pool_schedule, thread_pool_threads, future_create, future_available, future_error;
    error *(*run_id_get)(run_id_get_args *);
    error *(*device_ordinal_get)(device_ordinal_get_args *);
};

struct buffer {
    std::size_t struct_size;
    extension *extensions;
    std::int32_t type;
    void *data;
    std::int64_t rank;
    std::int64_t *dimensions;
};

struct span {
    const char *data;
    std::size_t size;
};
constexpr std::int32_t k_string_attribute = 4;

struct buffers {  // arguments and results lie alike
    std::size_t struct_size;
    extension *extensions;
    std::int64_t size;
    std::int32_t *kinds;
    void **buffers;
};
struct attributes {
    std::size_t struct_size;
    extension *extensions;
    std::int64_t size;
    std::int32_t *kinds;
    span **names;
    void **values;
};

constexpr std::int32_t k_execute = 3;
struct call_frame {
    std::size_t struct_size;
    extension *extensions;
    const api *table;
    context *ctx;
    std::int32_t stage;
    buffers arguments, results;
    attributes attrs;
    void *future;
};

struct metadata {
    std::size_t struct_size;
    version api_version;
    std::uint32_t traits;  // 0: not to be recorded into a command buffer
    std::int64_t state_type;
};
struct metadata_extension {
    extension base;
    metadata *data;
};

// Bytes of one element of XLA's numbered types; 0 for one that does not lie in whole bytes or is not known.
constexpr std::uint64_t element_bytes(std::int32_t type) {
    switch (type) {
        case 1:
        case 2:
        case 6:
        case 19:
        case 20:
        case 23:
        case 24:
        case 25:
        case 28:
        case 29:
        case 33:  // pred, 8 bits
            return 1;
        case 3:
        case 7:
        case 10:
        case 16:  // s16, u16, f16, bf16
            return 2;
        case 4:
        case 8:
        case 11:  // s32, u32, f32
            return 4;
        case 5:
        case 9:
        case 12:
        case 15:  // s64, u64, f64, c64
            return 8;
        case 18:  // c128
            return 16;
        default:
            return 0;
    }
}

}  // namespace ebb_jax::xla

#endif  // EBB_PLUGINS_XLA_FFI_TABLE_HPP
