// Ebb's automatic mode against eight policies of systems in use today, on workloads that the simulated machines run.
// A table on standard output, or with --json one JSON object; --out writes that object to a file as well.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "policy/baseline.hpp"
#include "policy/ebb_runs.hpp"
#include "policy/policy_workloads.hpp"

namespace {

using namespace ebb;             // NOLINT(google-build-using-namespace)
using namespace ebb::baselines;  // NOLINT(google-build-using-namespace)
using nlohmann::json;

constexpr double k_tie = 0.001;
constexpr size_t k_quick_every = 5;

double gib(uint64_t bytes) {
    return static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0);
}

struct row {
    std::string system;
    std::string chosen;  // save set and setting
    double step_ns = 0, exposed_ns = 0;
    uint64_t device_bytes = 0, host_bytes = 0;
    bool fits = false;
    bool is_rival = false;  // that Ebb is to be no slower than
};

struct comparison {
    const policy_workload *what = nullptr;
    uint64_t budget_bytes = 0, least_bytes = 0, keep_bytes = 0;
    std::vector<row> rows;  // the last two are Ebb
    ebb_run one_pool, staging;

    // The fastest rival that fits; none: null.
    [[nodiscard]] const row *best() const {
        const row *found = nullptr;
        for (const row &r : rows) {
            if (r.is_rival && r.fits && (found == nullptr || r.step_ns < found->step_ns)) {
                found = &r;
            }
        }
        return found;
    }
    [[nodiscard]] double ratio() const {
        const row *b = best();
        return b == nullptr ? 0 : one_pool.step_ns / b->step_ns;
    }
    [[nodiscard]] bool is_first() const {
        return one_pool.feasible && one_pool.no_slot == 0 && one_pool.device_peak_bytes <= budget_bytes &&
               ratio() <= 1 + k_tie;
    }
};

// The best of all save sets and settings; the least memory where nothing fits.
result<row> best_of(const baseline &what, const built_workload &w, uint64_t budget_bytes) {
    const sim_machine machine = to_sim_machine(w.machine);
    row found;
    found.system = what.name();
    for (size_t i = 0; i < w.by_save_set.size(); ++i) {
        const result<best_setting> played = play_best(what, w.by_save_set[i], machine, budget_bytes);
        if (!played.ok()) {
            return played.why();
        }
        const baseline_result &r = played.value().result;
        const bool fits = !r.out_of_memory;
        const bool better = fits != found.fits ? fits
                            : fits             ? r.step_ns < found.step_ns
                                               : r.device_peak_bytes < found.device_bytes;
        if (i == 0 || better) {
            found.chosen = fmt::format("{}; {}", policy_save_sets()[i].name, played.value().chosen.text);
            found.step_ns = r.step_ns;
            found.exposed_ns = r.exposed_ns;
            found.device_bytes = r.device_peak_bytes;
            found.host_bytes = r.host_peak_bytes;
            found.fits = fits;
        }
    }
    return found;
}

// The least device memory of any baseline, and what keeping everything takes.
status find_budget(const built_workload &w, comparison &c) {
    c.least_bytes = ~uint64_t{0};
    for (const std::unique_ptr<baseline> &b : make_all_baselines()) {
        const result<row> r = best_of(*b, w, 0);
        if (!r.ok()) {
            return r.why();
        }
        c.least_bytes = std::min(c.least_bytes, r.value().device_bytes);
    }
    const result<baseline_result> kept = make_keep()->play(w.by_save_set[0], to_sim_machine(w.machine), 0, {"", 1, 0});
    if (!kept.ok()) {
        return kept.why();
    }
    c.keep_bytes = kept.value().device_peak_bytes;
    c.budget_bytes =
        c.least_bytes + static_cast<uint64_t>(c.what->budget_part * static_cast<double>(c.keep_bytes - c.least_bytes));
    c.budget_bytes = std::min(c.budget_bytes, w.machine.device_bytes.value);
    return {};
}

row row_of(const char *name, const ebb_run &run, uint64_t budget_bytes) {
    row r;
    r.system = name;
    r.chosen =
        fmt::format("{:.1f} kept, {:.1f} moved, {:.1f} again", gib(run.kept), gib(run.offloaded), gib(run.recomputed));
    r.step_ns = run.step_ns;
    r.device_bytes = run.device_peak_bytes;
    r.host_bytes = run.host_peak_bytes;
    r.fits = run.feasible && run.device_peak_bytes <= budget_bytes;
    return r;
}

result<comparison> compare(const policy_workload &what) {
    const result<built_workload> built = build_workload(what);
    if (!built.ok()) {
        return built.why();
    }
    const built_workload &w = built.value();
    comparison c;
    c.what = &what;
    EBB_TRY(find_budget(w, c));
    std::vector<std::unique_ptr<baseline>> all = make_all_baselines();
    all.insert(all.begin(), make_recompute());
    all.insert(all.begin(), make_keep());
    for (const std::unique_ptr<baseline> &b : all) {
        result<row> r = best_of(*b, w, c.budget_bytes);
        if (!r.ok()) {
            return r.why();
        }
        c.rows.push_back(std::move(r).value());
        c.rows.back().is_rival = true;
    }
    for (const memory_mode mode : {memory_mode::one_pool, memory_mode::staging}) {
        const result<ebb_run> run = run_ebb(w.by_save_set[0].model, w.machine, mode, c.budget_bytes);
        if (!run.ok()) {
            return status{run.why().code(), fmt::format("{}: {}", what.name, run.why().text())};
        }
        const bool pooled = mode == memory_mode::one_pool;
        (pooled ? c.one_pool : c.staging) = run.value();
        c.rows.push_back(row_of(pooled ? "Ebb" : "Ebb, staging", run.value(), c.budget_bytes));
    }
    return c;
}

// --------------------------------------------------------------------------------------------------------- output --

json json_of(const comparison &c) {
    json systems = json::array();
    for (const row &r : c.rows) {
        systems.push_back({{"name", r.system},
                           {"setting", r.chosen},
                           {"status", r.fits ? "ok" : "out_of_memory"},
                           {"step_ms", r.fits ? json(r.step_ns / 1e6) : json()},
                           {"exposed_ms", r.fits && r.is_rival ? json(r.exposed_ns / 1e6) : json()},
                           {"device_gib", gib(r.device_bytes)},
                           {"host_gib", gib(r.host_bytes)}});
    }
    const row *best = c.best();
    return {{"name", c.what->name},
            {"machine", c.what->machine},
            {"model", c.what->model},
            {"sequence", c.what->sequence},
            {"micro_batch", c.what->micro_batch},
            {"micro_batches", c.what->micro_batches},
            {"budget_gib", gib(c.budget_bytes)},
            {"keep_gib", gib(c.keep_bytes)},
            {"systems", systems},
            {"predicted_ms", c.one_pool.predicted_ns / 1e6},
            {"bound_ms", c.one_pool.bound_ns / 1e6},
            {"step_ms", c.one_pool.step_ns / 1e6},
            {"best", best == nullptr ? json() : json(best->system)},
            {"best_ms", best == nullptr ? json() : json(best->step_ns / 1e6)},
            {"ratio", best == nullptr ? json() : json(c.ratio())},
            {"first_or_tied", c.is_first()}};
}

std::string padded_table(const std::vector<std::vector<std::string>> &lines) {
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
        text += '\n';
    }
    return text;
}

std::string table_of(const std::vector<comparison> &all) {
    std::vector<std::vector<std::string>> lines(1);
    lines[0] = {"step time, ms", "GiB of", "keep's"};
    for (const row &r : all.front().rows) {
        lines[0].push_back(r.system);
    }
    lines[0].insert(lines[0].end(), {"Ebb/best", "Ebb/bound", ""});
    for (const comparison &c : all) {
        std::vector<std::string> line{c.what->name, fmt::format("{:.1f}", gib(c.budget_bytes)),
                                      fmt::format("{:.1f}", gib(c.keep_bytes))};
        const row *best = c.best();
        for (const row &r : c.rows) {
            line.push_back(!r.fits ? "-" : fmt::format("{:.2f}{}", r.step_ns / 1e6, &r == best ? "*" : ""));
        }
        line.push_back(best == nullptr ? "-" : fmt::format("{:.4f}", c.ratio()));
        line.push_back(fmt::format("{:.4f}", c.one_pool.step_ns / c.one_pool.bound_ns));
        line.push_back(!c.is_first() ? "BEHIND" : c.ratio() < 1 - k_tie ? "first" : "tied");
        lines.push_back(line);
    }
    return padded_table(lines);
}

int failed(const std::string &why) {
    std::cerr << "policy_bench: " << why << "\n";
    return 1;
}

}  // namespace

int main(int argc, char **argv) {
    CLI::App app("Ebb's automatic mode against eight policies of systems in use today, on simulated machines.");
    bool as_json = false;
    bool quick = false;
    std::string out;
    std::string only;
    app.add_flag("--json", as_json, "one JSON object instead of the table");
    app.add_flag("--quick", quick, "every fifth workload only");
    app.add_option("--out", out, "write the JSON object to this file as well");
    app.add_option("--only", only, "workloads with this in their name");
    CLI11_PARSE(app, argc, argv);

    std::vector<comparison> all;
    size_t number = 0;
    for (const policy_workload &w : policy_workloads()) {
        const bool skipped = quick && number++ % k_quick_every != 0;
        if (skipped || std::string(w.name).find(only) == std::string::npos) {
            continue;
        }
        std::cerr << "policy: " << w.name << "\n";
        result<comparison> c = compare(w);
        if (!c.ok()) {
            return failed(c.why().text());
        }
        all.push_back(std::move(c).value());
    }
    if (all.empty()) {
        return failed(fmt::format("no workload has \"{}\" in its name", only));
    }
    json report = {{"tie", k_tie}, {"workloads", json::array()}};
    for (const comparison &c : all) {
        report["workloads"].push_back(json_of(c));
    }
    std::cout << (as_json ? report.dump(2) + "\n" : table_of(all));
    if (!out.empty() && !(std::ofstream(out) << report.dump(2) << "\n")) {
        return failed(fmt::format("{} cannot be written", out));
    }
    return 0;
}
