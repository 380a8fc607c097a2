#include "cli/plan_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "cli/output.hpp"
#include "cli/table_printer.hpp"
#include "observe/plan_json.hpp"

namespace ebb::cli {

namespace {

using nlohmann::ordered_json;

constexpr tensor_placement k_all_placements[] = {tensor_placement::keep, tensor_placement::offload,
                                                 tensor_placement::recompute};

struct placement_group {
    std::string name;
    uint64_t tensors = 0;
    uint64_t size_bytes = 0;
    std::map<tensor_placement, std::set<uint32_t>> layers;
    std::map<tensor_placement, uint64_t> count;
};

// In the order of first production.
std::vector<placement_group> placement_groups(const plan &p, const step_model &model) {
    std::vector<placement_group> groups;
    for (size_t t = 0; t < model.tensors.size(); ++t) {
        const step_tensor &tensor = model.tensors[t];
        const std::string name = tensor.name.substr(tensor.name.rfind('/') + 1);
        auto found =
            std::find_if(groups.begin(), groups.end(), [&](const placement_group &g) { return g.name == name; });
        if (found == groups.end()) {
            found = groups.insert(found, placement_group{name, 0, 0, {}, {}});
        }
        ++found->tensors;
        found->size_bytes += tensor.size_bytes;
        found->layers[p.placement[t]].insert(tensor.layer);
        ++found->count[p.placement[t]];
    }
    return groups;
}

// "0-3, 7, 9-50"; what gets too long ends in dots.
std::string layer_ranges(const std::set<uint32_t> &layers) {
    constexpr size_t k_longest = 28;
    std::string text;
    for (auto at = layers.begin(); at != layers.end();) {
        const uint32_t first = *at;
        uint32_t last = first;
        for (++at; at != layers.end() && *at == last + 1; ++at) {
            ++last;
        }
        const std::string range = first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
        if (text.size() + range.size() > k_longest) {
            return text + ", ...";
        }
        text += (text.empty() ? "" : ", ") + range;
    }
    return text;
}

std::string count_text(const placement_group &g, tensor_placement placement) {
    const auto found = g.count.find(placement);
    return found == g.count.end() ? "" : fmt::format("{}", found->second);
}

std::string where_text(const placement_group &g) {
    std::string text;
    for (const tensor_placement placement : k_all_placements) {
        const auto found = g.layers.find(placement);
        if (found != g.layers.end() && g.layers.size() > 1) {
            text += fmt::format("{}{} {}", text.empty() ? "" : "; ", placement_name(placement),
                                layer_ranges(found->second));
        }
    }
    return text;
}

}  // namespace

std::string shortage_text(const evaluation &e, const step_model &model) {
    if (e.missing_bytes == 0) {
        return "there is no such plan that fits";
    }
    std::string where;
    if (e.missing_at < model.events.size() && model.events[e.missing_at].tensor != k_no_index) {
        where = " at " + model.tensors[model.events[e.missing_at].tensor].name;
    }
    return fmt::format("{} memory is first {} GiB short{}", e.missing_on_host ? "host" : "device",
                       in_gib(e.missing_bytes), where);
}

ordered_json rate_json(const workload &w, double step_ns) {
    ordered_json rates;
    rates["tokens_per_second"] = w.model ? ordered_json(w.tokens_per_second(step_ns)) : ordered_json();
    rates["tflops"] = w.model ? ordered_json(w.tflops(step_ns)) : ordered_json();
    return rates;
}

ordered_json evaluation_json(const evaluation &e, const workload &w) {
    if (!e.feasible) {
        return {{"feasible", false},
                {"missing_gib", to_gib(e.missing_bytes)},
                {"missing_on", e.missing_on_host ? "host" : "device"}};
    }
    ordered_json all{{"feasible", true}, {"step_ms", to_ms(e.step_ns)}};
    all.update(rate_json(w, e.step_ns));
    all.update({{"compute_ms", to_ms(e.compute_ns)},
                {"recompute_ms", to_ms(e.recompute_ns)},
                {"exposed_d2h_ms", to_ms(e.exposed_d2h_ns)},
                {"exposed_h2d_ms", to_ms(e.exposed_h2d_ns)},
                {"exposed_collective_ms", to_ms(e.exposed_collective_ns)},
                {"device_peak_gib", to_gib(e.device_peak_bytes)},
                {"host_peak_gib", to_gib(e.host_peak_bytes)},
                {"offloaded_gib", to_gib(e.offloaded_bytes)},
                {"reloaded_gib", to_gib(e.reloaded_bytes)}});
    return all;
}

ordered_json workload_json(const workload &w) {
    ordered_json all{{"machine", w.machine.name}, {"model", w.model ? w.model->name : w.title}};
    if (w.model) {
        const step_settings &s = w.settings;
        all.update({{"micro_batch", s.micro_batch},
                    {"sequence", s.sequence},
                    {"micro_batches", s.micro_batches},
                    {"shards", s.shards},
                    {"format", number_format_name(s.gemm_format)}});
    }
    all["memory"] = w.budget.mode == memory_mode::one_pool ? "one_pool" : "staging";
    all["device_budget_gib"] = to_gib(w.budget.device_bytes);
    all["host_budget_gib"] = to_gib(w.budget.host_bytes);
    return all;
}

std::string parts_text(const std::vector<named_bytes> &parts) {
    table_printer table({"<device peak by part", "GiB"});
    for (const named_bytes &part : parts) {
        table.add({part.name, fmt::format("{:.2f}", to_gib(part.size_bytes))});
    }
    return table.text();
}

std::vector<named_bytes> fixed_parts_of(const workload &w) {
    const step_model &m = w.step.model;
    return !w.step.fixed_parts.empty() ? w.step.fixed_parts
           : m.fixed_bytes != 0        ? std::vector<named_bytes>{{"always held", m.fixed_bytes}}
                                       : std::vector<named_bytes>{};
}

std::string placements_text(const plan &p, const step_model &model) {
    table_printer table({"<tensor", "number", "GiB", "keep", "offload", "recompute", "<layers"});
    for (const placement_group &g : placement_groups(p, model)) {
        table.add({g.name, fmt::format("{}", g.tensors), in_gib(g.size_bytes), count_text(g, tensor_placement::keep),
                   count_text(g, tensor_placement::offload), count_text(g, tensor_placement::recompute),
                   where_text(g)});
    }
    return table.text();
}

ordered_json placements_json(const plan &p, const step_model &model) {
    ordered_json all = ordered_json::array();
    for (const placement_group &g : placement_groups(p, model)) {
        ordered_json row{{"name", g.name}, {"tensors", g.tensors}, {"gib", to_gib(g.size_bytes)}};
        for (const tensor_placement placement : k_all_placements) {
            const auto found = g.count.find(placement);
            row[std::string(placement_name(placement))] = found == g.count.end() ? 0 : found->second;
        }
        all.push_back(std::move(row));
    }
    return all;
}

}  // namespace ebb::cli
