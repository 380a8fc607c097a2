// What a stream of the host device is asked to do: records of fixed size in a ring that grows and never shrinks, so
// that enqueueing allocates nothing once warm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/device.hpp"
#include "device/host/marker.hpp"

namespace ebb {

enum class operation_kind : uint8_t { launch, record, wait, copy, checksum };

struct operation {
    operation_kind kind = operation_kind::launch;
    copy_direction direction = copy_direction::d2d;  // copy
    void (*function)(void *) = nullptr;              // launch
    marker *point = nullptr;                         // record and wait; held by the operation
    void *target = nullptr;                          // copy: destination; launch: argument; checksum: accumulator
    const void *source = nullptr;                    // copy, checksum
    uint64_t size_bytes = 0;                         // copy, checksum
};

class operation_ring {
public:
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    void push(const operation &added) {
        if (size_ == slots_.size()) {
            grow();
        }
        slots_[(first_ + size_) & (slots_.size() - 1)] = added;
        ++size_;
    }
    operation pop() noexcept {
        const operation taken = slots_[first_];
        first_ = (first_ + 1) & (slots_.size() - 1);
        --size_;
        return taken;
    }

private:
    void grow() {
        std::vector<operation> larger(slots_.size() * 2);
        for (size_t i = 0; i < size_; ++i) {
            larger[i] = slots_[(first_ + i) & (slots_.size() - 1)];
        }
        slots_.swap(larger);
        first_ = 0;
    }

    std::vector<operation> slots_ = std::vector<operation>(64);  // always a power of two
    size_t first_ = 0;
    size_t size_ = 0;
};

}  // namespace ebb
