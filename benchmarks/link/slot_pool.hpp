// Equal slots in one block of device memory, lent to Ebb as its allocator for staging: as in a framework, kept tensors
// and reloaded ones come from one pool. A reload then stands behind the home stream's point, which the gate holds.
#pragma once

#include <cstdint>
#include <vector>

#include "ebb/ebb.h"

namespace ebb::link {

class slot_pool {
public:
    // What an activation of that size takes in a slot, and the next slot's alignment.
    [[nodiscard]] static uint64_t slot_bytes(uint64_t size_bytes) noexcept {
        constexpr uint64_t k_page_bytes = 4096;
        return (size_bytes + k_page_bytes - 1) / k_page_bytes * k_page_bytes + k_page_bytes;
    }

    // All free, of that size from here on.
    void reset(void *memory, uint64_t slot_count, uint64_t size_of_each_bytes) {
        free_.clear();
        size_bytes_ = size_of_each_bytes;
        for (uint64_t i = slot_count; i-- > 0;) {
            free_.push_back(static_cast<char *>(memory) + i * size_bytes_);
        }
    }

    // The pool must outlive the runtime.
    [[nodiscard]] ebb_allocator allocator() { return {&take, &give_back, nullptr, this}; }

private:
    static void *take(void *context, uint64_t size_bytes, uint64_t /*alignment*/, ebb_stream /*home*/) {
        auto &pool = *static_cast<slot_pool *>(context);
        if (pool.free_.empty() || size_bytes > pool.size_bytes_) {
            return nullptr;
        }
        void *slot = pool.free_.back();
        pool.free_.pop_back();
        return slot;
    }
    // A slot goes to another home only after everything was waited for: a repetition ends so.
    static void give_back(void *context, void *data, uint64_t /*size_bytes*/, ebb_stream /*home*/) {
        static_cast<slot_pool *>(context)->free_.push_back(data);
    }

    std::vector<void *> free_;
    uint64_t size_bytes_ = 0;
};

}  // namespace ebb::link
