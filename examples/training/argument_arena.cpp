#include "argument_arena.hpp"

#include <algorithm>

namespace train {
namespace {

constexpr size_t k_block_bytes = 256 * 1024;

}  // namespace

void *argument_arena::take(size_t bytes, size_t alignment) {
    for (;; ++current_) {
        if (current_ == blocks_.size()) {
            const size_t size = std::max(bytes, k_block_bytes);
            blocks_.push_back({std::make_unique<std::byte[]>(size), size, 0});
        }
        block &b = blocks_[current_];
        const size_t start = (b.used + alignment - 1) / alignment * alignment;
        if (start + bytes <= b.bytes) {
            b.used = start + bytes;
            return b.memory.get() + start;
        }
    }
}

void argument_arena::clear() {
    for (block &b : blocks_) {
        b.used = 0;
    }
    current_ = 0;
}

}  // namespace train
