// Memory that operations use one after the other, as large as the largest of them needs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace step {

class growing_memory {
public:
    using allocator = std::function<std::shared_ptr<void>(uint64_t size_bytes)>;
    explicit growing_memory(allocator allocate) : allocate_(std::move(allocate)) {}

    // What was there before is forgotten, in the order of the stream.
    void *at_least(uint64_t size_bytes) {
        if (size_bytes > size_bytes_) {
            memory_.reset();
            size_bytes_ = 0;
            memory_ = allocate_(size_bytes);
            size_bytes_ = size_bytes;
        }
        return memory_.get();
    }

private:
    allocator allocate_;
    std::shared_ptr<void> memory_;
    uint64_t size_bytes_ = 0;
};

}  // namespace step
