// XLA's buffers on CUDA. The few functions of the driver that the handles need are a table, so that this runs on the
// tests' double of CUDA too; XLA has loaded the driver, and building needs no toolkit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "jax_mover.hpp"

namespace ebb_jax {

// Names, arguments and results (0: it went well) are the driver's.
struct cuda_driver {
    int (*stream_get_ctx)(void *stream, void **context);
    int (*ctx_push_current)(void *context);
    int (*ctx_pop_current)(void **context);
    int (*memset_d8_async)(std::uint64_t device, unsigned char value, std::size_t size_bytes, void *stream);
    int (*memset_d32_async)(std::uint64_t device, unsigned value, std::size_t count, void *stream);
    int (*memcpy_d_to_h_async)(void *host, std::uint64_t device, std::size_t size_bytes, void *stream);
    int (*stream_synchronize)(void *stream);
};

using create_runtime = ebb_status (*)(const ebb_runtime_options *options, ebb_runtime **runtime);

// `driver` is null where there is none: every call then says so. It outlives the mover.
std::unique_ptr<mover> make_cuda_mover(const cuda_driver *driver, create_runtime create);
// Over the driver of this process.
mover &cuda_mover();

}  // namespace ebb_jax
