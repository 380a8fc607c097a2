#include "device/copy_arguments.hpp"

#include <fmt/core.h>

#include <limits>

namespace ebb {
namespace {

bool wraps(const void *data, uint64_t size_bytes) {
    return size_bytes > std::numeric_limits<uint64_t>::max() - reinterpret_cast<uintptr_t>(data);
}

}  // namespace

status check_copy_arguments(const void *destination, const void *source, uint64_t size_bytes) {
    if (size_bytes == 0) {
        return {};
    }
    if (destination == nullptr || source == nullptr) {
        return {code::invalid_argument, fmt::format("copy of {} bytes: the {} is null", size_bytes,
                                                    destination == nullptr ? "destination" : "source")};
    }
    if (wraps(destination, size_bytes) || wraps(source, size_bytes)) {
        return {code::invalid_argument, fmt::format("copy of {} bytes: no memory is that large", size_bytes)};
    }
    const auto to = reinterpret_cast<uintptr_t>(destination);
    const auto from = reinterpret_cast<uintptr_t>(source);
    if (to < from + size_bytes && from < to + size_bytes) {
        return {code::invalid_argument,
                fmt::format("copy of {} bytes: source {} and destination {} overlap", size_bytes, source, destination)};
    }
    return {};
}

status check_checksum_arguments(const void *data, uint64_t size_bytes, const uint64_t *accumulator) {
    if (accumulator == nullptr) {
        return {code::invalid_argument, "checksum: the accumulator is null"};
    }
    if (size_bytes > 0 && (data == nullptr || wraps(data, size_bytes))) {
        return {code::invalid_argument,
                fmt::format("checksum of {} bytes: the data at {} cannot be that", size_bytes, data)};
    }
    return {};
}

}  // namespace ebb
