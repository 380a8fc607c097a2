// Tickets for tests that only care which of them come back.
#pragma once

#include <cstdint>

#include "base/ticket.hpp"

namespace ebb {

inline ticket ticket_of(uint16_t timeline, uint64_t sequence) {
    ticket t;
    t.timeline = timeline;
    t.sequence = sequence & ((uint64_t{1} << 48U) - 1);
    return t;
}

inline ticket_set one_ticket(uint64_t sequence, uint16_t timeline = 1) {
    ticket_set set;
    EBB_CHECK(set.add(ticket_of(timeline, sequence)));
    return set;
}

}  // namespace ebb
