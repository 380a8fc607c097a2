// Copies over the link between host and device, plain ones and Ebb's, side by side. A table on standard output, or with
// --json one JSON object; --out writes that object to a file as well.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "base/quantity.hpp"
#include "link/link_devices.hpp"
#include "link/link_report.hpp"
#include "link/measure_cell.hpp"

namespace {

using namespace ebb;        // NOLINT(google-build-using-namespace)
using namespace ebb::link;  // NOLINT(google-build-using-namespace)

constexpr uint32_t k_default_repetitions = 7;

struct options {
    std::string device = "auto";
    int32_t ordinal = 0;
    bool full = false;
    std::vector<std::string> sizes;
    std::string only;
    uint32_t repetitions = k_default_repetitions;
    bool as_json = false;
    std::string out;
};

int ended(int exit_status, const std::string &why) {
    std::cerr << "link_bench: " << why << "\n";
    return exit_status;
}

// Both ways, alone and together, of these sizes.
result<std::vector<link_cell>> cells_of_sizes(const std::vector<std::string> &sizes) {
    std::vector<link_cell> cells;
    for (const std::string &text : sizes) {
        constexpr uint64_t k_least_bytes = 8;
        const std::optional<uint64_t> size_bytes = parse_bytes(text);
        if (!size_bytes || *size_bytes < k_least_bytes || *size_bytes % k_least_bytes != 0) {
            return status{code::invalid_argument,
                          fmt::format("--size {}: give a size in multiples of 8 bytes, like 16MiB", text)};
        }
        for (const bool together : {false, true}) {
            cells.push_back({way::d2h, together, load::none, *size_bytes});
            cells.push_back({way::h2d, together, load::none, *size_bytes});
        }
    }
    return cells;
}

result<std::vector<link_cell>> cells_of(const options &o) {
    std::vector<link_cell> cells = chosen_cells();
    if (o.full) {
        std::vector<load> loads{load::none, load::compute};
        if (has_nccl()) {
            loads.push_back(load::nccl);
        }
        cells = all_cells(loads);
    }
    if (!o.sizes.empty()) {
        result<std::vector<link_cell>> asked = cells_of_sizes(o.sizes);
        EBB_TRY(asked.why());
        cells = std::move(asked).value();
    }
    std::vector<link_cell> wanted;
    for (const link_cell &cell : cells) {
        if (cell.name().find(o.only) != std::string::npos) {
            wanted.push_back(cell);
        }
    }
    if (wanted.empty()) {
        return status{code::invalid_argument,
                      fmt::format("no cell has \"{}\" in its name, as in \"{}\"", o.only, cells.front().name())};
    }
    return wanted;
}

result<link_device> open_device(const options &o, const std::vector<link_cell> &cells) {
    if (o.device == "host") {
        return open_host(cells);
    }
    result<link_device> cuda = open_cuda(o.ordinal);
    if (cuda.ok() || o.device == "cuda") {
        return cuda;
    }
    std::cerr << "link_bench: the host device, since: " << cuda.why().text() << "\n";
    return open_host(cells);
}

result<link_report> measure(link_device on, const std::vector<link_cell> &cells, const options &o) {
    link_report report;
    report.context = on.context;
    report.context.emplace_back("library", ebb_build_info());
    const result<std::unique_ptr<link_rig>> rig = link_rig::make(std::move(on), cells);
    EBB_TRY(rig.why());
    for (const link_cell &cell : cells) {
        std::cerr << fmt::format("link: {} of {}, {}\n", report.cells.size() + 1, cells.size(), cell.name());
        result<cell_times> times = measure_cell(*rig.value(), cell, o.repetitions);
        if (!times.ok()) {
            return status{times.why().code(), fmt::format("{}: {}", cell.name(), times.why().text())};
        }
        report.cells.push_back(std::move(times).value());
    }
    return report;
}

int run(const options &o) {
    const result<std::vector<link_cell>> cells = cells_of(o);
    if (!cells.ok()) {
        return ended(2, cells.why().text());
    }
    result<link_device> device = open_device(o, cells.value());
    if (!device.ok()) {
        return ended(1, device.why().text());
    }
    const result<link_report> report = measure(std::move(device).value(), cells.value(), o);
    if (!report.ok()) {
        return ended(1, report.why().text());
    }
    const std::string text = link_json(report.value()).dump(2) + "\n";
    std::cout << (o.as_json ? text : link_table(report.value())) << std::flush;
    if (!o.out.empty() && !(std::ofstream(o.out) << text)) {
        return ended(1, fmt::format("{} cannot be written", o.out));
    }
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    CLI::App app(
        "Copies between host and device, plain ones (on CUDA: one cudaMemcpyAsync each) and Ebb's (ebb_offload,\n"
        "ebb_reload), side by side. All copies of a repetition are enqueued behind a gate before the first one runs, "
        "only\n"
        "the device's time counts, traffic the other way moves twice the bytes, and every byte is looked at.\n\n"
        "Exit status: 0 done, 1 something failed (a wrong byte, too), 2 wrong usage.");
    options o;
    app.add_option("--device", o.device, "cuda, host, or auto: cuda where there is a GPU")
        ->check(CLI::IsMember({"auto", "cuda", "host"}))
        ->capture_default_str();
    app.add_option("--ordinal", o.ordinal, "which GPU")->check(CLI::NonNegativeNumber)->capture_default_str();
    CLI::Option *full =
        app.add_flag("--full", o.full, "each direction, alone and together, under each load, 4KiB to 4GiB");
    app.add_option("--size", o.sizes, "instead: both directions, alone and together, of these sizes, like 16MiB")
        ->excludes(full);
    app.add_option("--only", o.only, "cells with this in their name, like \"h2d together\"");
    app.add_option("--repetitions", o.repetitions, "of each cell, plain and Ebb's in turns; medians are told")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    app.add_flag("--json", o.as_json, "one JSON object instead of the table");
    app.add_option("--out", o.out, "write the JSON object to this file as well");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &e) {
        return app.exit(e) == 0 ? 0 : 2;
    }
    return run(o);
}
