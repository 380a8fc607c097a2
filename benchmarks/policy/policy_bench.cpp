// Ebb's automatic mode against eight policies of systems in use today, on workloads that simulated machines run. A
// table on standard output, or with --json one JSON object; --out writes that object to a file as well.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "policy/policy_comparison.hpp"
#include "policy/policy_report.hpp"

namespace {

using namespace ebb;             // NOLINT(google-build-using-namespace)
using namespace ebb::baselines;  // NOLINT(google-build-using-namespace)

constexpr size_t k_quick_every = 5;

struct options {
    bool as_json = false;
    bool quick = false;
    std::string out;
    std::string only;
};

int failed(const std::string &why) {
    std::cerr << "policy_bench: " << why << "\n";
    return 1;
}

std::vector<policy_workload> chosen_workloads(const options &o) {
    std::vector<policy_workload> chosen;
    size_t number = 0;
    for (const policy_workload &w : policy_workloads()) {
        const bool skipped = o.quick && number++ % k_quick_every != 0;
        if (!skipped && std::string(w.name).find(o.only) != std::string::npos) {
            chosen.push_back(w);
        }
    }
    return chosen;
}

int run(const options &o) {
    const std::vector<policy_workload> chosen = chosen_workloads(o);
    if (chosen.empty()) {
        return failed(fmt::format("no workload has \"{}\" in its name", o.only));
    }
    std::vector<policy_comparison> all;
    for (const policy_workload &w : chosen) {
        std::cerr << fmt::format("policy: {} of {}, {}\n", all.size() + 1, chosen.size(), w.name);
        result<policy_comparison> c = compare_policies(w);
        if (!c.ok()) {
            return failed(c.why().text());
        }
        all.push_back(std::move(c).value());
    }
    const std::string report = policy_json(all).dump(2) + "\n";
    std::cout << (o.as_json ? report : policy_table(all));
    if (!o.out.empty() && !(std::ofstream(o.out) << report)) {
        return failed(fmt::format("{} cannot be written", o.out));
    }
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    CLI::App app("Ebb's automatic mode against eight policies of systems in use today, on simulated machines.");
    options o;
    app.add_flag("--json", o.as_json, "one JSON object instead of the table");
    app.add_flag("--quick", o.quick, "every fifth workload only");
    app.add_option("--out", o.out, "write the JSON object to this file as well");
    app.add_option("--only", o.only, "workloads with this in their name");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &e) {
        return app.exit(e) == 0 ? 0 : 2;
    }
    return run(o);
}
