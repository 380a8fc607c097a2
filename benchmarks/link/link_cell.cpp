#include "link/link_cell.hpp"

#include <algorithm>

#include "base/quantity.hpp"
#include "link/slot_pool.hpp"

namespace ebb::link {

namespace {

constexpr uint64_t k_kib = 1024;
constexpr uint64_t k_mib = 1024 * k_kib;
constexpr uint64_t k_gib = 1024 * k_mib;

constexpr uint64_t k_fewest_copies = 2;
constexpr uint64_t k_most_copies = 16;
constexpr uint64_t k_enough_bytes = k_gib;

}  // namespace

const char *way_name(way w) noexcept {
    return w == way::d2h ? "d2h" : "h2d";
}

const char *load_name(load l) noexcept {
    switch (l) {
        case load::none:
            return "none";
        case load::compute:
            return "compute";
        case load::nccl:
            return "nccl";
    }
    return "";
}

way other(way w) noexcept {
    return w == way::d2h ? way::h2d : way::d2h;
}

std::string link_cell::name() const {
    std::string text = way_name(measured);
    text += together ? " together" : " alone";
    if (under != load::none) {
        text += std::string(" under ") + load_name(under);
    }
    return text + " " + format_bytes(size_bytes);
}

std::vector<link_cell> chosen_cells() {
    std::vector<link_cell> cells;
    const auto both_ways = [&](bool together, load under, uint64_t size_bytes) {
        cells.push_back({way::d2h, together, under, size_bytes});
        cells.push_back({way::h2d, together, under, size_bytes});
    };
    both_ways(false, load::none, 64 * k_kib);
    both_ways(false, load::none, k_mib);
    both_ways(false, load::none, 16 * k_mib);
    both_ways(false, load::none, k_gib);
    both_ways(true, load::none, 64 * k_mib);
    both_ways(false, load::compute, 64 * k_mib);
    return cells;
}

std::vector<link_cell> all_cells(const std::vector<load> &loads) {
    std::vector<link_cell> cells;
    for (const load under : loads) {
        for (const bool together : {false, true}) {
            for (uint64_t size_bytes = 4 * k_kib; size_bytes <= 4 * k_gib; size_bytes *= 4) {
                cells.push_back({way::d2h, together, under, size_bytes});
                cells.push_back({way::h2d, together, under, size_bytes});
            }
        }
    }
    return cells;
}

uint64_t copies_of(const link_cell &cell) noexcept {
    return std::clamp(k_enough_bytes / cell.size_bytes, k_fewest_copies, k_most_copies);
}

cell_memory memory_of(const link_cell &cell) noexcept {
    // The other way moves twice as much. Each side has sources and slots on the device, and blocks on the host; plain
    // copies use the same memory after Ebb's, and pinned memory of their own.
    const uint64_t moved = copies_of(cell) * (cell.together ? 3 : 1);
    const uint64_t slot_bytes = slot_pool::slot_bytes(cell.size_bytes);
    return {2 * moved * slot_bytes, 2 * moved * slot_bytes};
}

}  // namespace ebb::link
