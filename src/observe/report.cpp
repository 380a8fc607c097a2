#include "observe/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace ebb {

namespace {

constexpr double k_mib = 1024.0 * 1024.0;
constexpr double k_ns_per_ms = 1e6;

constexpr const char *k_reasons[] = {"none",       "policy",           "floor",
                                     "last",       "not_recomputable", "host_cap",
                                     "pinning",    "copy_error",       "larger_than_slot",
                                     "integrated", "evaluation",       "plan",
                                     "capture"};

double mib(uint64_t bytes) {
    return static_cast<double>(bytes) / k_mib;
}
double ms(uint64_t ns) {
    return static_cast<double>(ns) / k_ns_per_ms;
}
double percent(uint64_t part, uint64_t whole) {
    return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

uint64_t hidden_ns(const name_counters &n) {
    return n.transfer_ns > n.exposed_ns ? n.transfer_ns - n.exposed_ns : 0;
}

// A layer's number is one name in the table for people: "layer.3/gate" and "layer.4/gate" are rows apart in JSON,
// one row "layer.*/gate" here. Within a scope a name is as it was given: "mlp/wi_0" and "mlp/wi_1" are two values.
std::string without_numbers(const std::string &path) {
    const bool has_scope = path.find('/') != std::string::npos;
    std::string out;
    for (size_t i = 0; i < path.size(); ++i) {
        const bool digit = path[i] >= '0' && path[i] <= '9';
        const bool starts = i != 0 && (path[i - 1] == '.' || path[i - 1] == '_' || path[i - 1] == '/');
        if (!digit || !starts) {
            out += path[i];
            continue;
        }
        size_t end = i;
        while (end < path.size() && path[end] >= '0' && path[end] <= '9') {
            ++end;
        }
        if (end == path.size() ? !has_scope : path[end] == '/') {
            out += '*';
            i = end - 1;
        } else {
            out += path[i];
        }
    }
    return out;
}

// In order of first appearance.
std::vector<std::string> one_for_all_layers(const std::vector<std::string> &paths) {
    std::vector<std::string> names;
    std::unordered_set<std::string> seen;
    for (const std::string &path : paths) {
        std::string name = without_numbers(path);
        if (seen.insert(name).second) {
            names.push_back(std::move(name));
        }
    }
    return names;
}

void add(name_counters &to, const name_counters &from) {
    to.calls += from.calls;
    to.kept += from.kept;
    to.offloaded += from.offloaded;
    to.recompute += from.recompute;
    to.shared += from.shared;
    to.saved_bytes += from.saved_bytes;
    to.offloaded_bytes += from.offloaded_bytes;
    to.reloaded_bytes += from.reloaded_bytes;
    to.given_up_bytes += from.given_up_bytes;
    to.forwarded += from.forwarded;
    to.prefetched += from.prefetched;
    to.on_demand += from.on_demand;
    to.transfer_ns += from.transfer_ns;
    to.exposed_ns += from.exposed_ns;
}

struct row {
    std::string name;
    name_counters n;
};

// In order of first appearance, with numbered scopes together.
std::vector<row> group(const report_input &in) {
    std::vector<row> rows;
    std::unordered_map<std::string, size_t> by_name;
    for (uint32_t i = 0; i < in.by_name.size(); ++i) {
        if (in.by_name[i].calls == 0) {
            continue;
        }
        std::string name = without_numbers(in.names.path(i));
        const auto [found, is_new] = by_name.try_emplace(name, rows.size());
        if (is_new) {
            rows.push_back({std::move(name), in.by_name[i]});
        } else {
            add(rows[found->second].n, in.by_name[i]);
        }
    }
    return rows;
}

nlohmann::ordered_json to_json(const counters &c) {
    return {{"steps", c.steps},
            {"sampled_steps", c.sampled_steps},
            {"offload_calls", c.offload_calls},
            {"kept", c.kept_count},
            {"offloaded", c.offloaded_count},
            {"recompute", c.recompute_count},
            {"forwarded", c.forwarded_count},
            {"reloads_prefetched", c.reloads_prefetched},
            {"reloads_on_demand", c.reloads_on_demand},
            {"prefetches_dropped", c.prefetches_dropped},
            {"no_slot", c.no_slot_count},
            {"d2h_bytes", c.d2h_bytes},
            {"h2d_bytes", c.h2d_bytes},
            {"given_up_bytes", c.given_up_bytes},
            {"hidden_ns", c.hidden_ns},
            {"exposed_ns", c.exposed_ns},
            {"device_peak_bytes", c.device_peak_bytes},
            {"device_budget_bytes", c.device_budget_bytes},
            {"staging_peak_bytes", c.staging_peak_bytes},
            {"pinned_peak_bytes", c.pinned_peak_bytes},
            {"pinned_peak_waste_bytes", c.pinned_peak_waste_bytes},
            {"over_budget_bytes",
             {{"policy", c.over_budget_policy_bytes},
              {"failure", c.over_budget_failure_bytes},
              {"larger_than_slot", c.over_budget_size_bytes},
              {"caller", c.over_budget_caller_bytes}}},
            {"order_mismatches", c.order_mismatches}};
}

// Null where there is none; what does not fit is null, too.
nlohmann::ordered_json to_json(const plan_counters &p) {
    if (p.made == 0) {
        return nullptr;
    }
    const auto or_null = [](uint64_t ns) { return ns == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(ns); };
    return {{"made", p.made},
            {"predicted_ns", p.predicted_ns},
            {"bound_ns", p.bound_ns},
            {"keep_ns", or_null(p.keep_ns)},
            {"recompute_ns", or_null(p.recompute_ns)},
            {"predicted_exposed_ns", p.predicted_exposed_ns},
            {"exposed_ns", p.compared == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(p.exposed_ns)},
            {"steps_compared", p.compared}};
}

std::string plan_text(const plan_counters &p) {
    const auto or_not = [](uint64_t ns) {
        return ns == 0 ? std::string("does not fit") : fmt::format("{:.2f}", ms(ns));
    };
    std::string text = fmt::format(
        "plan {}: step {:.2f} ms predicted (bound {:.2f}, keep {}, recompute {}), waits {:.2f} ms predicted", p.made,
        ms(p.predicted_ns), ms(p.bound_ns), or_not(p.keep_ns), or_not(p.recompute_ns), ms(p.predicted_exposed_ns));
    if (p.compared != 0) {
        text += fmt::format(", {:.2f} seen in the last of {} steps compared", ms(p.exposed_ns), p.compared);
    }
    return text + "\n";
}

}  // namespace

std::string report_text(const report_input &in) {
    std::string out;
    auto to = std::back_inserter(out);
    const counters &c = in.totals;
    const std::vector<row> rows = group(in);
    size_t width = 10;
    for (const row &r : rows) {
        width = std::max(width, r.name.size());
    }
    fmt::format_to(to, "Ebb report: device {}, {} training steps, times from {} sampled steps\n", in.device, c.steps,
                   c.sampled_steps);
    fmt::format_to(to, "{:<{}}  {:>6} {:>6} {:>7} {:>6} {:>10} {:>10} {:>10} {:>9} {:>9}\n", "name", width, "calls",
                   "kept", "offload", "remat", "copied MiB", "given MiB", "back MiB", "hidden ms", "exposed ms");
    for (const row &r : rows) {
        fmt::format_to(to, "{:<{}}  {:>6} {:>6} {:>7} {:>6} {:>10.1f} {:>10.1f} {:>10.1f} {:>9.1f} {:>9.1f}\n", r.name,
                       width, r.n.calls, r.n.kept, r.n.offloaded, r.n.recompute, mib(r.n.offloaded_bytes),
                       mib(r.n.given_up_bytes), mib(r.n.reloaded_bytes), ms(hidden_ns(r.n)), ms(r.n.exposed_ns));
    }
    fmt::format_to(to, "copied to host {:.1f} MiB, really given up {:.1f} MiB, forwarded {} times\n", mib(c.d2h_bytes),
                   mib(c.given_up_bytes), c.forwarded_count);
    fmt::format_to(to, "reloads: {} prefetched, {} on demand, {} without a slot; {} prefetches dropped\n",
                   c.reloads_prefetched, c.reloads_on_demand, c.no_slot_count, c.prefetches_dropped);
    fmt::format_to(
        to, "peaks: device budget {:.1f} of {:.1f} MiB, staging {:.1f} MiB, pinned {:.1f} MiB ({:.1f} % waste)\n",
        mib(c.device_peak_bytes), mib(c.device_budget_bytes), mib(c.staging_peak_bytes), mib(c.pinned_peak_bytes),
        percent(c.pinned_peak_waste_bytes, c.pinned_peak_bytes));
    if (c.plan.made != 0) {
        out += plan_text(c.plan);
    }
    const uint64_t over = c.over_budget_policy_bytes + c.over_budget_failure_bytes + c.over_budget_size_bytes +
                          c.over_budget_caller_bytes;
    if (over != 0) {
        fmt::format_to(
            to,
            "budget passed by up to: policy {:.1f}, failed transfers {:.1f}, larger than a slot {:.1f}, caller "
            "{:.1f} MiB\n",
            mib(c.over_budget_policy_bytes), mib(c.over_budget_failure_bytes), mib(c.over_budget_size_bytes),
            mib(c.over_budget_caller_bytes));
    }
    for (const std::string &pattern : in.unmatched_patterns) {
        fmt::format_to(to, "policy pattern '{}' matched no activation\n", pattern);
    }
    for (const std::string &name : one_for_all_layers(in.unmatched_names)) {
        fmt::format_to(to, "'{}' matched no policy pattern and was kept\n", name);
    }
    return out;
}

std::string report_json(const report_input &in) {
    nlohmann::ordered_json names = nlohmann::ordered_json::array();
    for (uint32_t i = 0; i < in.by_name.size(); ++i) {
        const name_counters &n = in.by_name[i];
        if (n.calls == 0) {
            continue;
        }
        nlohmann::ordered_json reasons = nlohmann::ordered_json::object();
        for (size_t r = 1; r < std::size(k_reasons); ++r) {
            if (n.kept_by_reason[r] != 0) {
                reasons[k_reasons[r]] = n.kept_by_reason[r];
            }
        }
        names.push_back({{"name", in.names.path(i)},
                         {"calls", n.calls},
                         {"kept", n.kept},
                         {"kept_by_reason", reasons},
                         {"offloaded", n.offloaded},
                         {"shared", n.shared},
                         {"recompute", n.recompute},
                         {"saved_bytes", n.saved_bytes},
                         {"offloaded_bytes", n.offloaded_bytes},
                         {"given_up_bytes", n.given_up_bytes},
                         {"reloaded_bytes", n.reloaded_bytes},
                         {"forwarded", n.forwarded},
                         {"prefetched", n.prefetched},
                         {"on_demand", n.on_demand},
                         {"hidden_ns", hidden_ns(n)},
                         {"exposed_ns", n.exposed_ns}});
    }
    const nlohmann::ordered_json all = {{"device", in.device},
                                        {"totals", to_json(in.totals)},
                                        {"plan", to_json(in.totals.plan)},
                                        {"names", names},
                                        {"unmatched_patterns", in.unmatched_patterns},
                                        {"unmatched_names", in.unmatched_names}};
    // Names are the caller's bytes, and need not be UTF-8.
    return all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace ebb
