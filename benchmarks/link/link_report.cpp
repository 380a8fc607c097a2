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

json json_of_calls(const call_cost &cost) {
    json made{{"size_bytes", cost.size_bytes},
              {"chunks", cost.chunks},
              {"activations", cost.activations},
              {"steps", cost.steps},
              {"call_ns", cost.call_ns},
              {"promised_calls", cost.promised_calls()},
              {"cuda", nullptr}};
    if (cost.cuda) {
        made["cuda"] = {{"own_ns", cost.cuda->own_ns},
                        {"memcpy_ns", cost.cuda->memcpy_ns},
                        {"d2h_calls", cost.cuda->d2h_calls},
                        {"h2d_calls", cost.cuda->h2d_calls}};
    }
    return made;
}

std::string note_of(const cell_times &cell) {
    const bool busy = cell.plain.other_way_busy && cell.ebb.other_way_busy;
    return cell.cell.together && !busy ? "  the other way ended first" : "";
}

std::string table_of_cells(const std::vector<cell_times> &cells) {
    std::string text = fmt::format("\n{:<4}  {:<8}  {:<7}  {:>8}  {:>6}  {:>11}  {:>9}  {:>9}\n", "way", "beside",
                                   "under", "size", "copies", "plain, GB/s", "Ebb, GB/s", "Ebb/plain");
    for (const cell_times &each : cells) {
        text += fmt::format("{:<4}  {:<8}  {:<7}  {:>8}  {:>6}  {:>11.2f}  {:>9.2f}  {:>9.3f}{}\n",
                            way_name(each.cell.measured), each.cell.together ? "together" : "alone",
                            load_name(each.cell.under), format_bytes(each.cell.size_bytes), each.copies,
                            each.bytes_per_second(each.plain) / 1e9, each.bytes_per_second(each.ebb) / 1e9,
                            each.ratio(), note_of(each));
    }
    return text;
}

// Where nothing goes to CUDA there is only the whole.
std::string table_of_calls(const std::vector<call_cost> &calls) {
    std::string text =
        fmt::format("\nper activation, there and back:\n{:>8}  {:>6}  {:>9}  {:>7}  {:>19}  {:>14}  {:>14}\n", "size",
                    "chunks", "calls, ns", "own, ns", "cudaMemcpyAsync, ns", "CUDA calls d2h", "CUDA calls h2d");
    for (const call_cost &each : calls) {
        text += fmt::format("{:>8}  {:>6}  {:>9.0f}", format_bytes(each.size_bytes), each.chunks, each.call_ns);
        text += each.cuda ? fmt::format("  {:>7.0f}  {:>19.0f}  {:>14.2f}  {:>14.2f}\n", each.cuda->own_ns,
                                        each.cuda->memcpy_ns, each.cuda->d2h_calls, each.cuda->h2d_calls)
                          : fmt::format("  {:>7}  {:>19}  {:>14}  {:>14}\n", "-", "-", "-", "-");
    }
    return text;
}

}  // namespace

std::string link_table(const link_report &report) {
    std::string text;
    for (const auto &[name, value] : report.context) {
        text += fmt::format("{}: {}\n", name, value);
    }
    if (!report.cells.empty()) {
        text += table_of_cells(report.cells);
    }
    if (!report.calls.empty()) {
        text += table_of_calls(report.calls);
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
    json calls = json::array();
    for (const call_cost &each : report.calls) {
        calls.push_back(json_of_calls(each));
    }
    return {{"context", context}, {"cells", cells}, {"calls", calls}};
}

}  // namespace ebb::link
