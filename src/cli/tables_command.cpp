#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cli/command_line.hpp"
#include "cli/commands.hpp"
#include "cli/exit_status.hpp"
#include "cli/output.hpp"
#include "cli/progress.hpp"
#include "cli/table_printer.hpp"
#include "model/published.hpp"
#include "simulate/published_ours.hpp"

namespace ebb::cli {

namespace {

using nlohmann::ordered_json;

// ---------------------------------------------------------------------------------------------------- the JSON --

ordered_json figure(bool is_there, double value) {
    return is_there ? ordered_json(value) : ordered_json();
}

ordered_json published_json(const published_row &r) {
    const bool ran = r.tflops != 0;
    return {{"tflops", figure(ran, r.tflops)},
            {"peak_gib", figure(ran, r.peak_gib)},
            {"host_gib", figure(ran || r.placement != published_placement::offload, r.host_gib)}};
}

ordered_json prediction_json(const published_prediction &p) {
    const bool runs = p.tflops.has_value();
    ordered_json row{{"table", p.published.table}, {"row", p.published.row}};
    row["published"] = published_json(p.published);
    row["predicted"] = {
        {"tflops", figure(runs, p.tflops.value_or(0))}, {"peak_gib", p.peak_gib}, {"host_gib", p.host_gib}};
    row["tflops_range"] = runs ? ordered_json{p.low_tflops, p.high_tflops} : ordered_json();
    row["peak_range"] = {p.low_peak_gib, p.high_peak_gib};
    row["peak_parts"] = ordered_json::object();
    for (const named_gib &part : p.peak_parts) {
        row["peak_parts"][part.name] = part.gib;
    }
    row["status"] = p.out_of_memory ? "out_of_memory" : "ok";
    row["fitted"] = p.published.fitted;
    row["assumptions"] = ordered_json::array();
    for (const published_sensitivity &s : p.assumptions) {
        row["assumptions"].push_back(
            {{"name", s.name}, {"default", s.by_default}, {"flipped_tflops", s.flipped_tflops}});
    }
    return row;
}

ordered_json ours_json(const published_ours &o) {
    return {{"table", o.table},
            {"tflops", o.tflops},
            {"best_published_tflops", o.best_published_tflops},
            {"copy_buffers_gib", figure(o.copy_buffers_gib.has_value(), o.copy_buffers_gib.value_or(0))},
            {"pipelined_rule_gib", o.pipelined_rule_gib},
            {"comparable", o.comparable},
            {"settings", o.settings}};
}

ordered_json tables_json(const published_report &report, const std::vector<published_ours> &ours) {
    ordered_json all{{"rows", ordered_json::array()}, {"notes", report.notes}, {"ours", ordered_json::array()}};
    for (const published_prediction &p : report.rows) {
        all["rows"].push_back(prediction_json(p));
    }
    for (const published_ours &o : ours) {
        all["ours"].push_back(ours_json(o));
    }
    return all;
}

// ---------------------------------------------------------------------------------------------------- the text --

std::string row_number(const published_row &r) {
    return fmt::format("{}.{}", r.table, r.row);
}

std::string switches(const published_row &r) {
    return fmt::format("{}{}", r.lhs ? "LHS" : "-", r.pipelined ? " + pipelined" : "");
}

std::string difference(double published, double predicted) {
    return fmt::format("{:+.1f} %", 100 * (predicted / published - 1));
}

std::string throughput_text(const published_report &report, uint32_t number) {
    table_printer table({"<row", "<placement", "<switches", "micro\nbatch", "published\nTFLOP/s", "predicted\nTFLOP/s",
                         "difference", "<range\nTFLOP/s", "<"});
    for (const published_prediction &p : report.rows) {
        const published_row &r = p.published;
        if (r.table != number) {
            continue;
        }
        const bool ran = r.tflops != 0 && p.tflops.has_value();
        table.add(
            {row_number(r), std::string(published_placement_name(r.placement)), switches(r),
             fmt::format("{}", r.micro_batch), r.tflops != 0 ? fmt::format("{:.1f}", r.tflops) : "no memory",
             p.tflops ? fmt::format("{:.1f}", *p.tflops) : "no memory", ran ? difference(r.tflops, *p.tflops) : "",
             p.tflops ? fmt::format("{:.0f} to {:.0f}", p.low_tflops, p.high_tflops) : "", r.fitted ? "fitted" : ""});
    }
    return table.text();
}

std::string memory_text(const published_report &report) {
    table_printer table({"<row", "peak published\nGiB", "predicted\nGiB", "<range\nGiB", "difference",
                         "host published\nGiB", "predicted\nGiB"});
    for (const published_prediction &p : report.rows) {
        const published_row &r = p.published;
        const bool ran = r.peak_gib != 0;
        table.add({row_number(r), ran ? fmt::format("{:.1f}", r.peak_gib) : "no memory",
                   fmt::format("{:.1f}", p.peak_gib), fmt::format("{:.1f} to {:.1f}", p.low_peak_gib, p.high_peak_gib),
                   ran ? difference(r.peak_gib, p.peak_gib) : "", fmt::format("{:.1f}", r.host_gib),
                   fmt::format("{:.1f}", p.host_gib)});
    }
    return table.text();
}

// Which rows have the same sum is seen best with the parts of all rows beside each other.
std::string peak_parts_text(const published_report &report) {
    std::vector<std::string> heads{"<part of the peak, GiB"};
    std::vector<std::string> names;
    for (const published_prediction &p : report.rows) {
        heads.push_back(row_number(p.published));
        for (const named_gib &part : p.peak_parts) {
            if (std::find(names.begin(), names.end(), part.name) == names.end()) {
                names.push_back(part.name);
            }
        }
    }
    table_printer table(heads);
    for (const std::string &name : names) {
        std::vector<std::string> cells{name};
        for (const published_prediction &p : report.rows) {
            const auto part = std::find_if(p.peak_parts.begin(), p.peak_parts.end(),
                                           [&](const named_gib &n) { return n.name == name; });
            cells.push_back(part == p.peak_parts.end() ? "" : fmt::format("{:.1f}", part->gib));
        }
        table.add(std::move(cells));
    }
    return table.text();
}

std::string host_parts_text(const published_report &report) {
    std::string text;
    for (const published_prediction &p : report.rows) {
        const bool first_of_its_model = !p.host_parts.empty() && text.find(p.published.model) == std::string::npos;
        if (!first_of_its_model) {
            continue;
        }
        table_printer table({fmt::format("<host memory of {}", p.published.model), "GiB"});
        for (const named_gib &part : p.host_parts) {
            table.add({part.name, fmt::format("{:.3f}", part.gib)});
        }
        table.add({"in all", fmt::format("{:.3f}", p.host_gib)});
        text += "\n" + table.text();
    }
    return text;
}

std::string assumptions_text(const published_report &report) {
    table_printer table({"<row", "<assumption", "<by default", "<flipped", "predicted\nTFLOP/s", "flipped\nTFLOP/s"});
    for (const published_prediction &p : report.rows) {
        for (const published_sensitivity &s : p.assumptions) {
            table.add({row_number(p.published), s.name, s.by_default, s.flipped, fmt::format("{:.1f}", *p.tflops),
                       fmt::format("{:.1f}", s.flipped_tflops)});
        }
    }
    return table.text();
}

std::string ours_text(const std::vector<published_ours> &ours) {
    table_printer table({"<table", "<plan", "ours\nTFLOP/s", "best published\nTFLOP/s", "ratio", "copy buffers\nGiB",
                         "XLA's rule\nGiB", "device peak\nGiB", "<settings"});
    for (const published_ours &o : ours) {
        table.add(
            {fmt::format("{}", o.table),
             o.comparable ? "same save set and collectives" : "free, not comparable: what is recomputed may differ",
             fmt::format("{:.1f}", o.tflops), fmt::format("{:.1f}", o.best_published_tflops),
             fmt::format("{:.4f}", o.tflops / o.best_published_tflops),
             o.copy_buffers_gib ? fmt::format("{:.2f}", *o.copy_buffers_gib) : "-",
             o.comparable ? fmt::format("{:.2f}", o.pipelined_rule_gib) : "-", fmt::format("{:.1f}", o.peak_gib),
             o.settings.empty() ? "none" : fmt::format("{}", o.settings.size())});
    }
    return table.text() +
           "copy buffers are the device's peak beyond what it is when each tensor is copied out where it is made and "
           "back\n"
           "where it is used; copies into room that is idle at other times than the peak add nothing to it.\n";
}

std::string tables_text(const published_report &report, const std::vector<published_ours> &ours) {
    std::string text = fmt::format("{}\n\nTable 1: DeepSeek-V3 671B\n{}\nTable 2: Llama 3.1 405B\n{}\nMemory\n{}\n{}{}",
                                   k_published_source, throughput_text(report, 1), throughput_text(report, 2),
                                   memory_text(report), peak_parts_text(report), host_parts_text(report));
    text += "\nAssumptions, each flipped alone\n" + assumptions_text(report) + "\nNotes\n";
    for (const std::string &note : report.notes) {
        text += "- " + note + "\n";
    }
    return text + "\nOurs, with the same rates, through the real runtime on the simulated device\n" + ours_text(ours);
}

status run_tables(bool json, terminal &io) {
    progress shown(io);
    shown.show("fitting and predicting the published rows");
    const result<published_report> report = predict_published();
    if (!report.ok()) {
        return report.why();
    }
    shown.show("planning the same workloads");
    const result<std::vector<published_ours>> ours = plan_published(report.value());
    if (!ours.ok()) {
        return ours.why();
    }
    shown.clear();
    json ? print_json(io, tables_json(report.value(), ours.value()))
         : print_text(io, tables_text(report.value(), ours.value()));
    return {};
}

}  // namespace

int tables_command(const arguments &args, terminal &io) {
    command_line line(
        "ebb tables",
        "Two published tables of training with host offloading, each row beside what the models say about "
        "it: what was fitted and assumed, how far each assumption matters, where the tables disagree; "
        "then our own plans on the same workloads. Everything is computed by the run.");
    bool json = false;
    line.flag("--json", json, "print one JSON object");
    line.examples("  ebb tables\n  ebb tables --json > tables.json\n");
    if (const std::optional<int> ended = line.parse(args, io)) {
        return *ended;
    }
    const status outcome = run_tables(json, io);
    return outcome.ok() ? k_done : line.fail(outcome, io);
}

}  // namespace ebb::cli
