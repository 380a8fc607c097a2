// One cell: repetitions of plain copies and of Ebb's, in turns.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "link/link_rig.hpp"

namespace ebb::link {

struct side_times {
    std::vector<uint64_t> ns;     // of all copies of a repetition, from the gate to the last byte
    bool other_way_busy = false;  // together: the other way was busy to the end in each of them

    [[nodiscard]] uint64_t median_ns() const;
};

struct cell_times {
    link_cell cell;
    uint64_t copies = 0;
    side_times plain, ebb;

    [[nodiscard]] double bytes_per_second(const side_times &side) const;
    [[nodiscard]] double ratio() const { return bytes_per_second(ebb) / bytes_per_second(plain); }
};

// A first repetition of each is not counted. A byte that is wrong is code::data_mismatch.
result<cell_times> measure_cell(link_rig &rig, const link_cell &cell, uint32_t repetitions);

}  // namespace ebb::link
