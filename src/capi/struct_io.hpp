// Structs that cross the ABI: they start with struct_size and grow only at the end. A caller of an older
// header gives a shorter one (the rest is zero, which means default), one of a newer header a longer one, of which
// we must not ignore anything that is set.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/status.hpp"

namespace ebb::capi {

// `first_bytes` is the struct's size in the first release. `known` is afterwards a struct with all fields of this
// library: the given one, or where that is shorter `copy`, filled with zeros. struct_size in it means nothing.
template <class Struct>
status read_struct(const Struct *given, const char *argument, size_t first_bytes, Struct &copy, const Struct *&known) {
    if (given == nullptr) {
        return {code::invalid_argument, fmt::format("{} is null", argument)};
    }
    const uint64_t size = given->struct_size;
    if (size < first_bytes || size > (uint64_t{1} << 20U)) {
        return {code::invalid_argument,
                fmt::format("{}->struct_size is {}: set it to sizeof the struct, which is at least {}", argument, size,
                            first_bytes)};
    }
    const auto *bytes = reinterpret_cast<const unsigned char *>(given);
    for (uint64_t i = sizeof(Struct); i < size; ++i) {
        if (bytes[i] != 0) {
            return {
                code::invalid_argument,
                fmt::format("{}->struct_size is {}, {} are known here, and byte {} beyond them is not zero: a newer "
                            "library is needed for that field",
                            argument, size, sizeof(Struct), i)};
        }
    }
    known = given;
    if (size < sizeof(Struct)) {
        copy = Struct{};
        std::memcpy(&copy, given, size);
        known = &copy;
    }
    return {};
}

// For structs that we fill: only struct_size is read.
template <class Struct>
status check_out_struct(const Struct *out, const char *argument, size_t first_bytes) {
    if (out == nullptr) {
        return {code::invalid_argument, fmt::format("{} is null", argument)};
    }
    const uint64_t size = out->struct_size;
    if (size < first_bytes || size > (uint64_t{1} << 20U)) {
        return {code::invalid_argument,
                fmt::format("{}->struct_size is {}: set it to sizeof the struct, which is at least {}", argument, size,
                            first_bytes)};
    }
    return {};
}

// fill(Struct &) sets all fields but struct_size; a shorter struct of the caller gets what it has room for.
template <class Struct, class Fill>
void fill_struct(Struct *out, Fill &&fill) {
    if (out->struct_size >= sizeof(Struct)) {
        fill(*out);
        return;
    }
    Struct whole{};
    whole.struct_size = out->struct_size;
    fill(whole);
    std::memcpy(out, &whole, whole.struct_size);
}

}  // namespace ebb::capi
