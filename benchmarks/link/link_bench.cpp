// Copies over the link between host and device, plain ones and Ebb's, side by side. A table on standard output, or with
// --json one JSON object; --out writes that object to a file as well.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/quantity.hpp"
#include "link/call_cost.hpp"
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

// What is to be measured.
struct plan {
    std::vector<link_cell> cells;
    std::vector<uint64_t> call_sizes_bytes;

    [[nodiscard]] size_t count() const { return cells.size() + call_sizes_bytes.size(); }
};

std::string name_of_calls(uint64_t size_bytes) {
    return "calls " + format_bytes(size_bytes);
}

// Of these sizes: both ways, alone and together, and what the calls cost.
result<plan> plan_of_sizes(const std::vector<std::string> &sizes) {
    plan asked;
    for (const std::string &text : sizes) {
        constexpr uint64_t k_unit_bytes = 8;
        const std::optional<uint64_t> size_bytes = parse_bytes(text);
        if (!size_bytes || *size_bytes == 0 || *size_bytes % k_unit_bytes != 0) {
            return status{code::invalid_argument,
                          fmt::format("--size {}: give a size in multiples of 8 bytes, like 16MiB", text)};
        }
        for (const bool together : {false, true}) {
            asked.cells.push_back({way::d2h, together, load::none, *size_bytes});
            asked.cells.push_back({way::h2d, together, load::none, *size_bytes});
        }
        asked.call_sizes_bytes.push_back(*size_bytes);
    }
    return asked;
}

plan everything(bool full) {
    constexpr uint64_t k_one_chunk_bytes = 1ULL << 20U;
    constexpr uint64_t k_several_chunks_bytes = 128ULL << 20U;
    std::vector<load> loads{load::none, load::compute};
    if (has_nccl()) {
        loads.push_back(load::nccl);
    }
    return {full ? all_cells(loads) : chosen_cells(), {k_one_chunk_bytes, k_several_chunks_bytes}};
}

result<plan> plan_of(const options &o) {
    result<plan> all = o.sizes.empty() ? everything(o.full) : plan_of_sizes(o.sizes);
    EBB_TRY(all.why());
    plan wanted;
    for (const link_cell &cell : all.value().cells) {
        if (cell.name().find(o.only) != std::string::npos) {
            wanted.cells.push_back(cell);
        }
    }
    for (const uint64_t size_bytes : all.value().call_sizes_bytes) {
        if (name_of_calls(size_bytes).find(o.only) != std::string::npos) {
            wanted.call_sizes_bytes.push_back(size_bytes);
        }
    }
    if (wanted.count() == 0) {
        return status{code::invalid_argument,
                      fmt::format("nothing has \"{}\" in its name, as in \"{}\" and \"{}\"", o.only,
                                  all.value().cells.front().name(), name_of_calls(all.value().call_sizes_bytes[0]))};
    }
    return wanted;
}

result<link_device> open_device(const options &o, uint64_t device_bytes) {
    return o.device == "host" ? open_host(device_bytes) : open_cuda(o.ordinal);
}

// Without --device: where there is a usable GPU, that.
void choose_device(options &o) {
    if (o.device != "auto") {
        return;
    }
    const result<link_device> cuda = open_cuda(o.ordinal);
    o.device = cuda.ok() ? "cuda" : "host";
    if (!cuda.ok()) {
        std::cerr << "link_bench: on the host device, since: " << cuda.why().text() << "\n";
    }
}

class progress {
public:
    explicit progress(size_t count) : count_(count) {}
    void next(const std::string &name) { std::cerr << fmt::format("link: {} of {}, {}\n", ++number_, count_, name); }

private:
    size_t count_;
    size_t number_ = 0;
};

status named(const std::string &name, const status &failed) {
    return {failed.code(), fmt::format("{}: {}", name, failed.text())};
}

status measure_cells(const options &o, const std::vector<link_cell> &cells, progress &shown, link_report &report) {
    uint64_t device_bytes = 0;
    for (const link_cell &cell : cells) {
        device_bytes = std::max(device_bytes, memory_of(cell).device_bytes);
    }
    result<link_device> on = open_device(o, device_bytes);
    EBB_TRY(on.why());
    report.context = on.value().context;
    const result<std::unique_ptr<link_rig>> rig = link_rig::make(std::move(on).value(), cells);
    EBB_TRY(rig.why());
    for (const link_cell &cell : cells) {
        shown.next(cell.name());
        result<cell_times> times = measure_cell(*rig.value(), cell, o.repetitions);
        if (!times.ok()) {
            return named(cell.name(), times.why());
        }
        report.cells.push_back(std::move(times).value());
    }
    return {};
}

status measure_calls(const options &o, uint64_t size_bytes, progress &shown, link_report &report) {
    shown.next(name_of_calls(size_bytes));
    result<link_device> on = open_device(o, memory_of_call_cost(size_bytes).device_bytes);
    EBB_TRY(on.why());
    report.context = on.value().context;
    result<call_cost> cost = measure_call_cost(std::move(on).value(), size_bytes);
    if (!cost.ok()) {
        return named(name_of_calls(size_bytes), cost.why());
    }
    report.calls.push_back(std::move(cost).value());
    return {};
}

status measure(const options &o, const plan &wanted, link_report &report) {
    progress shown(wanted.count());
    if (!wanted.cells.empty()) {
        EBB_TRY(measure_cells(o, wanted.cells, shown, report));
    }
    for (const uint64_t size_bytes : wanted.call_sizes_bytes) {
        EBB_TRY(measure_calls(o, size_bytes, shown, report));
    }
    report.context.emplace_back("library", ebb_build_info());
    return {};
}

int run(options o) {
    const result<plan> wanted = plan_of(o);
    if (!wanted.ok()) {
        return ended(2, wanted.why().text());
    }
    choose_device(o);
    link_report report;
    if (const status measured = measure(o, wanted.value(), report); !measured.ok()) {
        return ended(1, measured.text());
    }
    const std::string text = link_json(report).dump(2) + "\n";
    std::cout << (o.as_json ? text : link_table(report)) << std::flush;
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
        "the device's time counts, traffic the other way moves twice the bytes, and every byte is looked at. Then "
        "what\n"
        "Ebb's calls cost the calling thread.\n\n"
        "Exit status: 0 done, 1 something failed (a wrong byte, too), 2 wrong usage.");
    options o;
    app.add_option("--device", o.device, "cuda, host, or auto: cuda where there is a GPU")
        ->check(CLI::IsMember({"auto", "cuda", "host"}))
        ->capture_default_str();
    app.add_option("--ordinal", o.ordinal, "which GPU")->check(CLI::NonNegativeNumber)->capture_default_str();
    CLI::Option *full =
        app.add_flag("--full", o.full, "each direction, alone and together, under each load, 4KiB to 4GiB");
    app.add_option("--size", o.sizes, "only these sizes, like 16MiB: both directions, alone and together, and calls")
        ->excludes(full);
    app.add_option("--only", o.only, "what has this in its name, like \"h2d together\" or \"calls\"");
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
