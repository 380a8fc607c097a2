// What the traced program says of a wrapped call: the attributes of XLA's calls, taken apart once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "xla_ffi_table.hpp"

namespace ebb_jax {

struct call_attributes {
    std::int64_t site = 0;
    std::uint64_t reloads = 0;  // of one offload, in the traced program; 0: it does not say
    bool stays = false;         // what it moves, until it is ended by its handle, or with everything
    std::string scope;
    std::string layout;  // how shards lie, so that a reload under another sharding is refused
    std::vector<std::string> names;
};

// Thread-safe. Lives as long as the process does; the same attributes give the same object.
const call_attributes &attributes_of(const xla::attributes &block);

}  // namespace ebb_jax
