// Memory that has addresses and sizes and no pages: address space that nobody may touch, handed out up to a capacity.
// For devices whose memory is accounted and not real.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "base/status.hpp"

namespace ebb {

class reserved_memory {
public:
    // What it is called in messages, and the status of a refusal.
    reserved_memory(std::string what, uint64_t capacity_bytes, code refusal);
    ~reserved_memory();
    reserved_memory(const reserved_memory &) = delete;
    reserved_memory &operator=(const reserved_memory &) = delete;

    result<void *> reserve(uint64_t size_bytes);
    status give_back(void *data, uint64_t size_bytes);

    [[nodiscard]] uint64_t capacity_bytes() const noexcept { return capacity_bytes_; }
    [[nodiscard]] uint64_t free_bytes() const;

private:
    const std::string what_;
    const uint64_t capacity_bytes_;
    const code refusal_;
    mutable std::mutex mutex_;
    uint64_t used_bytes_ = 0;
    std::map<void *, uint64_t> sizes_;
};

}  // namespace ebb
