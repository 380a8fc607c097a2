#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/quantity.hpp"
#include "cli/command_line.hpp"
#include "cli/commands.hpp"
#include "cli/exit_status.hpp"
#include "cli/output.hpp"
#include "cli/table_printer.hpp"
#include "model/profile_library.hpp"

namespace ebb::cli {

namespace {

using nlohmann::ordered_json;

struct shown_number {
    std::string value;
    std::string unit;
};

bool name_ends_in(const std::string &name, const std::string &end) {
    return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

std::string shown_curve(const ordered_json &points) {
    std::string text;
    for (const ordered_json &p : points) {
        text += fmt::format("{}{:g} at {}", text.empty() ? "" : ", ", p[1].get<double>(),
                            format_bytes(p[0].get<uint64_t>()));
    }
    return text;
}

// A unit that suits what the number is of, which is in its name.
shown_number shown_of(const std::string &path, const ordered_json &value) {
    if (value.is_array()) {
        return {shown_curve(value), "of the rate"};
    }
    if (value.is_boolean()) {
        return {value.get<bool>() ? "yes" : "no", ""};
    }
    const auto number = value.get<double>();
    if (name_ends_in(path, "bytes_per_second")) {
        return {fmt::format("{:g}", number / 1e9), "GB/s"};
    }
    if (name_ends_in(path, "memory_bytes")) {
        return {in_gib(static_cast<uint64_t>(number)), "GiB"};
    }
    if (path.find("peak_flops/") != std::string::npos) {
        return {fmt::format("{:g}", number / 1e12), "TFLOP/s"};
    }
    return {fmt::format("{:g}", number), name_ends_in(path, "_ns") ? "ns" : ""};
}

void add_numbers(const ordered_json &at, const std::string &path, table_printer &table) {
    for (const auto &[key, inside] : at.items()) {
        const std::string name = path.empty() ? key : fmt::format("{}/{}", path, key);
        if (inside.is_object() && inside.contains("value")) {
            const shown_number shown = shown_of(name, inside["value"]);
            table.add({name, shown.value, shown.unit, inside["kind"].get<std::string>(),
                       inside["source"].get<std::string>()});
        } else if (inside.is_object()) {
            add_numbers(inside, name, table);
        }
    }
}

status show_machine(const std::string &name, bool json, terminal &io) {
    const result<machine_profile> machine = find_machine(name);
    if (!machine.ok()) {
        return machine.why();
    }
    const result<std::string> text = machine_text(name);
    if (!text.ok()) {
        return text.why();
    }
    const ordered_json file = ordered_json::parse(text.value());
    if (json) {
        print_json(io, file);
        return {};
    }
    table_printer table({"<number", "<value", "<unit", "<kind", "<source"});
    add_numbers(file, "", table);
    std::string all = machine.value().name + ": " + machine.value().title + "\n\n" + table.text();
    for (const std::string &note : machine.value().notes) {
        all += "\n" + note + "\n";
    }
    print_text(io, all);
    return {};
}

ordered_json machine_summary(const machine_profile &m) {
    return {{"name", m.name},
            {"title", m.title},
            {"device_gib", to_gib(m.device_bytes.value)},
            {"bf16_tflops", m.peak_flops[0]->value / 1e12},
            {"hbm_gb_per_second", m.hbm_bytes_per_second.value / 1e9},
            {"d2h_gb_per_second", m.d2h.bytes_per_second.value / 1e9},
            {"h2d_gb_per_second", m.h2d.bytes_per_second.value / 1e9},
            {"link_kind", source_kind_name(m.d2h.bytes_per_second.kind)},
            {"host_gib_per_device", to_gib(pinnable_bytes(m))}};
}

status list_machines(bool json, terminal &io) {
    table_printer table({"<name", "device\nGiB", "bf16 peak\nTFLOP/s", "HBM\nTB/s", "to host\nGB/s", "from host\nGB/s",
                         "<link", "host per device\nGiB", "<machine"});
    ordered_json list = ordered_json::array();
    for (const std::string_view name : machine_names()) {
        const result<machine_profile> found = find_machine(std::string(name));
        if (!found.ok()) {
            return found.why();
        }
        const machine_profile &m = found.value();
        list.push_back(machine_summary(m));
        table.add({m.name, in_gib(m.device_bytes.value), fmt::format("{:.0f}", m.peak_flops[0]->value / 1e12),
                   fmt::format("{:.1f}", m.hbm_bytes_per_second.value / 1e12),
                   fmt::format("{:.0f}", m.d2h.bytes_per_second.value / 1e9),
                   fmt::format("{:.0f}", m.h2d.bytes_per_second.value / 1e9),
                   std::string(source_kind_name(m.d2h.bytes_per_second.kind)), in_gib(pinnable_bytes(m)), m.title});
    }
    json ? print_json(io, {{"machines", list}}) : print_text(io, table.text());
    return {};
}

}  // namespace

int machines_command(const arguments &args, terminal &io) {
    command_line line("ebb machines", "The machines that are known, or one of them with the source of every number.");
    std::string name;
    bool json = false;
    line.positional("machine", name, "name, or a file of one's own, to show in detail");
    line.flag("--json", json, "print one JSON object; of one machine its file, to start one's own from");
    line.examples(
        "  ebb machines\n"
        "  ebb machines gb200-nvl72\n"
        "  ebb machines gb200-nvl72 --json > mine.json; ebb machines ./mine.json\n");
    if (const std::optional<int> ended = line.parse(args, io)) {
        return *ended;
    }
    const status outcome = name.empty() ? list_machines(json, io) : show_machine(name, json, io);
    return outcome.ok() ? k_done : line.fail(outcome, io);
}

}  // namespace ebb::cli
