#include "policy/policy_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace ebb::baselines {

namespace {

using nlohmann::json;

double report_gib(uint64_t bytes) {
    return static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0);
}

json ms_if_it_fits(const policy_row &r, double time_ns) {
    return r.fits ? json(time_ns / 1e6) : json();
}

json json_of_row(const policy_row &r) {
    return {{"name", r.system},
            {"setting", r.chosen},
            {"status", r.fits ? "ok" : "out_of_memory"},
            {"step_ms", ms_if_it_fits(r, r.step_ns)},
            {"exposed_ms", ms_if_it_fits(r, r.exposed_ns)},
            {"device_gib", report_gib(r.device_bytes)},
            {"host_gib", report_gib(r.host_bytes)}};
}

std::array<const policy_row *, 3> rows_of_ebb(const policy_comparison &c) {
    return {&c.ebb_row, &c.staging_row, &c.automatic_row};
}

json json_of_comparison(const policy_comparison &c) {
    json systems = json::array();
    for (const policy_row &r : c.rivals) {
        systems.push_back(json_of_row(r));
    }
    for (const policy_row *r : rows_of_ebb(c)) {
        systems.push_back(json_of_row(*r));
    }
    const policy_row *best = c.best();
    return {{"name", c.name},
            {"budget_gib", report_gib(c.budget_bytes)},
            {"least_gib", report_gib(c.least_bytes)},
            {"keep_gib", report_gib(c.keep_bytes)},
            {"systems", systems},
            {"predicted_ms", c.one_pool.predicted_ns / 1e6},
            {"bound_ms", c.one_pool.bound_ns / 1e6},
            {"step_ms", ms_if_it_fits(c.ebb_row, c.ebb_row.step_ns)},
            {"best", best == nullptr ? json() : json(fmt::format("{} ({})", best->system, best->chosen))},
            {"best_ms", best == nullptr ? json() : json(best->step_ns / 1e6)},
            {"ratio", best == nullptr ? json() : json(c.ratio())},
            {"automatic_ms", ms_if_it_fits(c.automatic_row, c.automatic_row.step_ns)},
            {"first_or_tied", c.is_first_or_tied()}};
}

std::string time_text(const policy_row &r, const policy_row *best) {
    return r.fits ? fmt::format("{:.2f}{}", r.step_ns / 1e6, &r == best ? "*" : "") : "-";
}

std::string verdict_text(const policy_comparison &c) {
    return !c.is_first_or_tied() ? "BEHIND" : c.ratio() < 1 - k_tie ? "first" : "tied";
}

std::vector<std::string> line_of(const policy_comparison &c) {
    std::vector<std::string> line{c.name, fmt::format("{:.1f}", report_gib(c.budget_bytes)),
                                  fmt::format("{:.1f}", report_gib(c.keep_bytes))};
    const policy_row *best = c.best();
    for (const policy_row &r : c.rivals) {
        line.push_back(time_text(r, best));
    }
    for (const policy_row *r : rows_of_ebb(c)) {
        line.push_back(time_text(*r, best));
    }
    for (const policy_row *r : {&c.ebb_row, &c.automatic_row}) {
        line.push_back(best == nullptr || !r->fits ? "-" : fmt::format("{:.4f}", c.ratio_of(*r)));
    }
    line.push_back(c.ebb_row.fits ? fmt::format("{:.4f}", c.ebb_row.step_ns / c.one_pool.bound_ns) : "-");
    line.push_back(verdict_text(c));
    return line;
}

std::string padded(const std::vector<std::vector<std::string>> &lines) {
    std::vector<size_t> widths(lines.front().size(), 0);
    for (const std::vector<std::string> &line : lines) {
        for (size_t i = 0; i < line.size(); ++i) {
            widths[i] = std::max(widths[i], line[i].size());
        }
    }
    std::string text;
    for (const std::vector<std::string> &line : lines) {
        for (size_t i = 0; i < line.size(); ++i) {
            text += i == 0 ? fmt::format("{:<{}}", line[i], widths[i]) : fmt::format("  {:>{}}", line[i], widths[i]);
        }
        text.erase(text.find_last_not_of(' ') + 1);
        text += '\n';
    }
    return text;
}

}  // namespace

std::string policy_table(const std::vector<policy_comparison> &all) {
    if (all.empty()) {
        return {};
    }
    std::vector<std::vector<std::string>> lines(2);  // so that columns are as narrow as their numbers
    lines[0] = {"step time in ms", "budget", "keep"};
    lines[1] = {"* the fastest other", "GiB", "GiB"};
    std::vector<const policy_row *> heads;
    for (const policy_row &r : all.front().rivals) {
        heads.push_back(&r);
    }
    for (const policy_row *r : rows_of_ebb(all.front())) {
        heads.push_back(r);
    }
    for (const policy_row *r : heads) {
        const size_t space = r->system.find(' ');
        lines[0].push_back(r->system.substr(0, space));
        lines[1].push_back(space == std::string::npos ? "" : r->system.substr(space + 1));
    }
    lines[0].insert(lines[0].end(), {"Ebb /", "automatic /", "Ebb /", ""});
    lines[1].insert(lines[1].end(), {"other", "other", "bound", ""});
    size_t first_or_tied = 0;
    for (const policy_comparison &c : all) {
        lines.push_back(line_of(c));
        first_or_tied += c.is_first_or_tied() ? 1 : 0;
    }
    return padded(lines) +
           fmt::format("first or tied (within {:g} %): {} of {}\n", 100 * k_tie, first_or_tied, all.size());
}

json policy_json(const std::vector<policy_comparison> &all) {
    json workloads = json::array();
    for (const policy_comparison &c : all) {
        workloads.push_back(json_of_comparison(c));
    }
    return {{"tie", k_tie}, {"workloads", workloads}};
}

}  // namespace ebb::baselines
