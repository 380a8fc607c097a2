// What the library exports: the handlers that are registered with XLA, and what Python calls by ctypes.
#include <cstdint>
#include <memory>

#include "ebb/ebb.h"
#include "jax_cuda_mover.hpp"
#include "jax_handlers.hpp"

#define EBB_JAX_EXPORT extern "C" __attribute__((visibility("default")))

using ebb_jax::xla::call_frame;
using ebb_jax::xla::error;

EBB_JAX_EXPORT error *ebb_jax_offload_cpu(call_frame *frame) {
    return ebb_jax::handle_offload(frame, ebb_jax::cpu_mover());
}
EBB_JAX_EXPORT error *ebb_jax_reload_cpu(call_frame *frame) {
    return ebb_jax::handle_reload(frame, ebb_jax::cpu_mover());
}
EBB_JAX_EXPORT error *ebb_jax_offload_cuda(call_frame *frame) {
    return ebb_jax::handle_offload(frame, ebb_jax::cuda_mover());
}
EBB_JAX_EXPORT error *ebb_jax_reload_cuda(call_frame *frame) {
    return ebb_jax::handle_reload(frame, ebb_jax::cuda_mover());
}

EBB_JAX_EXPORT void ebb_jax_configure(const ebb_runtime_options *options, std::uint64_t survivor_bytes) {
    ebb_jax::configure(*options, survivor_bytes);
}
EBB_JAX_EXPORT void ebb_jax_mark_steps() {
    ebb_jax::mark_steps();
}

// Calls `each` with the name of every device and its runtime.
EBB_JAX_EXPORT void ebb_jax_each_runtime(void (*each)(const char *name, ebb_runtime *runtime)) {
    for (const std::shared_ptr<ebb_jax::place> &one : ebb_jax::all_places()) {
        each(one->name.c_str(), one->runtime);
    }
}

EBB_JAX_EXPORT std::uint64_t ebb_jax_live_count() {
    return ebb_jax::all_groups().live_count();
}
EBB_JAX_EXPORT std::uint64_t ebb_jax_live_bytes() {
    return ebb_jax::all_groups().live_bytes();
}

EBB_JAX_EXPORT void ebb_jax_end(std::uint64_t handle) {
    ebb_jax::all_groups().end_one(handle, "nobody had it any more");
}

// How many it ended.
EBB_JAX_EXPORT std::uint64_t ebb_jax_release() {
    return ebb_jax::all_groups().release_all("ebb.jax.release() ended it");
}
EBB_JAX_EXPORT void ebb_jax_close() {
    ebb_jax::close_all();
}
