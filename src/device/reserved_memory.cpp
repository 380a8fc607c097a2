#include "device/reserved_memory.hpp"

#include <fmt/core.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace ebb {

reserved_memory::reserved_memory(std::string what, uint64_t capacity_bytes, code refusal)
    : what_(std::move(what)), capacity_bytes_(capacity_bytes), refusal_(refusal) {}

reserved_memory::~reserved_memory() {
    for (const auto &[data, size_bytes] : sizes_) {
        munmap(data, size_bytes);
    }
}

result<void *> reserved_memory::reserve(uint64_t size_bytes) {
    if (size_bytes == 0) {
        return status{code::invalid_argument, fmt::format("{}: 0 bytes wanted; ask for at least 1", what_)};
    }
    const std::lock_guard lock(mutex_);
    if (size_bytes > capacity_bytes_ - used_bytes_) {
        return status{refusal_, fmt::format("{}: {} bytes wanted, {} bytes held, the cap is {} bytes", what_,
                                            size_bytes, used_bytes_, capacity_bytes_)};
    }
    void *data = mmap(nullptr, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
        return status{refusal_, fmt::format("{}: {} bytes of address space refused ({})", what_, size_bytes,
                                            std::strerror(errno))};
    }
    used_bytes_ += size_bytes;
    sizes_[data] = size_bytes;
    return data;
}

status reserved_memory::give_back(void *data, uint64_t size_bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(data);
    if (found == sizes_.end() || found->second != size_bytes) {
        return {code::invalid_argument, fmt::format("{}: no {} bytes at {} were given out", what_, size_bytes, data)};
    }
    munmap(data, size_bytes);
    used_bytes_ -= size_bytes;
    sizes_.erase(found);
    return {};
}

uint64_t reserved_memory::free_bytes() const {
    const std::lock_guard lock(mutex_);
    return capacity_bytes_ - used_bytes_;
}

}  // namespace ebb
