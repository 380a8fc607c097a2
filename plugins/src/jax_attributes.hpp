// What the traced program says of a wrapped call: the attribute of XLA's calls, taken apart once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "xla_ffi_table.hpp"

namespace ebb_jax {

struct call_attributes {
    std::int64_t site = 0, serial = 0;  // of the calls at a site
    std::uint64_t reloads = 0;          // of one offload, in the traced program; 0: it does not say
    bool stays = false;                 // what it moves, until it is ended by its handle, or with everything
    std::string scope;
    std::string layout;  // how shards lie, so that a reload under another sharding is refused
    std::vector<std::string> names;
    std::vector<std::string> paths;  // of the names, with the scope: what Ebb knows them by
};

// The only attribute of a call is a text: lines of a key and a value, "name" once for each array. One text, since all
// that there is is compared at every call. Thread-safe. Lives as long as the process does; the same text gives the same
// object.
const call_attributes &attributes_of(const xla::attributes &block);

}  // namespace ebb_jax
