// What XLA's calls of offload and reload do, on any platform. XLA's side of a call is taken apart here; what a handle
// stands for is jax_groups, and how bytes move is jax_mover.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ebb/ebb.h"
#include "jax_groups.hpp"
#include "jax_mover.hpp"
#include "xla_ffi_table.hpp"

namespace ebb_jax {

xla::error *handle_offload(xla::call_frame *frame, mover &with);
xla::error *handle_reload(xla::call_frame *frame, mover &with);

// For runtimes made from now on; texts in it stay the caller's.
void configure(const ebb_runtime_options &options, std::uint64_t survivor_bytes);
// From now on until close_all, runs begin no steps.
void mark_steps();
std::vector<std::shared_ptr<place>> all_places();
groups &all_groups();
void close_all();

}  // namespace ebb_jax
