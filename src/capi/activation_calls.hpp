// What the borrow, staged and DLPack forms share.
#pragma once

#include "capi/session.hpp"

namespace ebb::capi {

// The record that a handle addresses; records are used again.
inline uint32_t record_of(uint64_t activation) noexcept {
    return static_cast<uint32_t>(activation & 0xFFFFFFFFU);
}

status read_offload_args(const ebb_offload_args *args, ebb_offload_args &copy, const ebb_offload_args *&known);
status offload_checked(entry &e, ebb_runtime &r, const ebb_offload_args &args, bool staged, ebb_offload_info *info);
status reload_checked(entry &e, ebb_runtime &r, uint64_t activation, stream_id consumer, reload_outcome &outcome);

}  // namespace ebb::capi
