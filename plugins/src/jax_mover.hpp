// How bytes leave and reach XLA's buffers on a kind of device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "ebb/ebb.h"
#include "jax_groups.hpp"

namespace ebb_jax {

// Empty: it went well. Otherwise what went wrong, and as which status.
struct failure {
    ebb_status status = EBB_OK;
    std::unique_ptr<const std::string> text;  // one word: almost all that are handed up are empty

    failure() = default;
    failure(ebb_status why, std::string message) : status(why), text(new std::string(std::move(message))) {}
    explicit operator bool() const { return status != EBB_OK; }
};
failure failed_call(ebb_status status);  // with ebb_last_error

// Of bytes that leave whatever policy and floor say. Path and producer outlive it.
inline ebb_offload_args moving(const std::string &path, void *data, std::uint64_t size_bytes,
                               const ebb_stream &producer) {
    ebb_offload_args args{};
    args.struct_size = sizeof args;
    args.name = path.c_str();
    args.data = data;
    args.size_bytes = size_bytes;
    args.producers = &producer;
    args.producer_count = 1;
    args.placement = EBB_PLACE_OFFLOAD;
    return args;
}

// The C++ side of one platform. `stream` is XLA's, null on the CPU.
class mover {
public:
    virtual ~mover() = default;
    // Whether XLA's calls have a stream there.
    [[nodiscard]] virtual bool has_streams() const = 0;
    // Makes the runtime of a device, and its name.
    virtual failure open(ebb_runtime_options options, std::int32_t ordinal, place &made) = 0;
    // When it returns the operand may be overwritten, on the CPU at once and elsewhere behind `stream`.
    virtual failure offload(place &home, const std::string &path, void *data, std::uint64_t size_bytes, void *stream,
                            part &made) = 0;
    // `data` is written until wait_for() returns, whether the reload went well or not.
    virtual failure reload(place &home, const part &what, void *data, void *stream) = 0;
    // Behind it what was reloaded is there, for the CPU at once and elsewhere for `stream`.
    virtual failure wait_for(place &home, const part &what) = 0;
    virtual failure fill_with_zeros(void *data, std::uint64_t size_bytes, void *stream) = 0;
    virtual failure write_handle(void *to, std::uint64_t handle, void *stream) = 0;
    // Of `count` handles that lie behind each other. May block.
    virtual failure read_handles(const void *from, std::uint64_t *handles, std::size_t count, void *stream) = 0;
};

mover &cpu_mover();

}  // namespace ebb_jax
