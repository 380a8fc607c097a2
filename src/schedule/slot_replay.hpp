// Where staging's slots would lie, with the very allocator that staging uses: where sizes differ, a slot may find no
// room between others though the bytes are there. What memory is taken follows from the order of the calls, so it is
// known before.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ticket.hpp"
#include "memory/staging.hpp"
#include "memory/sub_allocator.hpp"

namespace ebb {

class slot_replay {
public:
    slot_replay() : sub_(staging::k_alignment) {}

    void begin(uint64_t staging_bytes);

    struct slot {
        sub_allocator::segment_id segment = 0;
        double free_at_ns = 0;  // when the last reader of its memory is done
    };
    [[nodiscard]] std::optional<slot> allocate(uint64_t size_bytes);
    void free(sub_allocator::segment_id segment, double at_ns);

private:
    sub_allocator sub_;
    std::vector<double> freed_at_ns_;  // a ticket's sequence is an index into it
    std::vector<ticket> waits_;
};

}  // namespace ebb
