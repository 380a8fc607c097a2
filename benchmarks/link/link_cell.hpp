// What is measured: a cell is one direction at one size, alone or beside traffic the other way, with or without other
// work on the device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ebb::link {

enum class way : uint8_t { d2h, h2d };
enum class load : uint8_t { none, compute, nccl };

struct link_cell {
    way measured = way::d2h;
    bool together = false;  // the other way is busy for at least as long
    load under = load::none;
    uint64_t size_bytes = 0;  // of each copy

    [[nodiscard]] std::string name() const;  // "d2h together under compute 16MiB"
};

[[nodiscard]] const char *way_name(way w) noexcept;
[[nodiscard]] const char *load_name(load l) noexcept;
[[nodiscard]] way other(way w) noexcept;

// The twelve that say most.
[[nodiscard]] std::vector<link_cell> chosen_cells();
// Each direction, alone and together, under each load, from 4 KiB to 4 GiB.
[[nodiscard]] std::vector<link_cell> all_cells(const std::vector<load> &loads);

// How many copies are timed as one: enough that the first and the last do not count, and not more bytes than needed.
[[nodiscard]] uint64_t copies_of(const link_cell &cell) noexcept;

// Memory that measuring the cell takes.
struct cell_memory {
    uint64_t device_bytes = 0;
    uint64_t pinned_bytes = 0;
};
[[nodiscard]] cell_memory memory_of(const link_cell &cell) noexcept;

}  // namespace ebb::link
