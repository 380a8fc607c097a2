#include "link/link_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantity.hpp"

namespace ebb::link {

namespace {

using json = nlohmann::ordered_json;

json json_of_side(const cell_times &cell, const side_times &side) {
    const auto [least, most] = std::minmax_element(side.ns.begin(), side.ns.end());
    json made{{"bytes_per_second", cell.bytes_per_second(side)},
              {"median_ns", side.median_ns()},
              {"least_ns", *least},
              {"most_ns", *most},
              {"repetitions", side.ns.size()}};
    if (cell.cell.together) {
        made["other_way_busy"] = side.other_way_busy;
    }
    return made;
}

json json_of_cell(const cell_times &cell) {
    return {{"name", cell.cell.name()},
            {"way", way_name(cell.cell.measured)},
            {"together", cell.cell.together},
            {"under", load_name(cell.cell.under)},
            {"size_bytes", cell.cell.size_bytes},
            {"copies", cell.copies},
            {"plain", json_of_side(cell, cell.plain)},
            {"ebb", json_of_side(cell, cell.ebb)},
            {"ratio", cell.ratio()},
            {"verified", true}};
}

std::string note_of(const cell_times &cell) {
    const bool busy = cell.plain.other_way_busy && cell.ebb.other_way_busy;
    return cell.cell.together && !busy ? "  the other way ended first" : "";
}

}  // namespace

std::string link_table(const link_report &report) {
    std::string text;
    for (const auto &[name, value] : report.context) {
        text += fmt::format("{}: {}\n", name, value);
    }
    text += fmt::format("\n{:<4}  {:<8}  {:<7}  {:>8}  {:>6}  {:>11}  {:>9}  {:>9}\n", "way", "beside", "under", "size",
                        "copies", "plain, GB/s", "Ebb, GB/s", "Ebb/plain");
    for (const cell_times &each : report.cells) {
        text += fmt::format("{:<4}  {:<8}  {:<7}  {:>8}  {:>6}  {:>11.2f}  {:>9.2f}  {:>9.3f}{}\n",
                            way_name(each.cell.measured), each.cell.together ? "together" : "alone",
                            load_name(each.cell.under), format_bytes(each.cell.size_bytes), each.copies,
                            each.bytes_per_second(each.plain) / 1e9, each.bytes_per_second(each.ebb) / 1e9,
                            each.ratio(), note_of(each));
    }
    return text;
}

json link_json(const link_report &report) {
    json context = json::object();
    for (const auto &[name, value] : report.context) {
        context[name] = value;
    }
    json cells = json::array();
    for (const cell_times &each : report.cells) {
        cells.push_back(json_of_cell(each));
    }
    return {{"context", context}, {"cells", cells}};
}

}  // namespace ebb::link
