#include "step_report.hpp"

#include <fmt/format.h>

#include "result_table.hpp"

namespace step {
namespace {

using json = nlohmann::ordered_json;

// Of the measured time.
std::optional<double> difference_part(const train::mode_result &result, const run_details &details) {
    if (!details.predicted_ms || result.out_of_memory) {
        return {};
    }
    return (*details.predicted_ms - result.step_ms) / result.step_ms;
}

std::string number_or_dash(const std::optional<double> &value, const char *format) {
    return value ? fmt::format(fmt::runtime(format), *value) : "-";
}

std::string memory_table(const std::vector<train::mode_result> &results, const std::vector<run_details> &details) {
    std::string text = fmt::format("\n{:<17}  {:>11}", "device memory, MiB", "micro batch");
    for (const char *const name : k_memory_names) {
        text += fmt::format("  {:>{}}", name, std::string_view(name).size());
    }
    text += fmt::format("  {:>8}  {:>8}\n", "rest", "in all");
    for (size_t i = 0; i < results.size(); ++i) {
        text += fmt::format("{:<18}  {:>10}", results[i].mode, results[i].micro_batch);
        for (size_t kind = 0; kind < k_memory_kinds; ++kind) {
            text += fmt::format("  {:>{}.1f}", train::mib(details[i].memory[kind]),
                                std::string_view(k_memory_names[kind]).size());
        }
        text += fmt::format("  {:>8.1f}  {:>8.1f}\n", train::mib(details[i].rest_bytes()),
                            train::mib(details[i].used_bytes));
    }
    return text;
}

json memory_json(const run_details &details) {
    json memory = json::object();
    for (size_t kind = 0; kind < k_memory_kinds; ++kind) {
        memory[k_memory_names[kind]] = details.memory[kind];
    }
    memory["rest"] = details.rest_bytes();
    memory["in_all"] = details.used_bytes;
    return memory;
}

json or_null(const std::optional<double> &value) {
    return value ? json(*value) : json(nullptr);
}

}  // namespace

std::string context_text(const step_settings &s) {
    const step_shape m = s.shape_at(s.shape.micro_batch);
    std::string text = s.device == "host" ? train::machine_text(s.offload) : "";
    text += fmt::format("{} layers, width {}, {} heads, SwiGLU {}", m.layers, m.width, m.heads, m.ffn);
    if (m.has_experts()) {
        text += fmt::format(" of {} experts, {} for a token", m.experts, m.top_k);
    }
    return text + fmt::format(
                      ", {:.1f} M weights\n"
                      "{} steps ({} timed; offload-auto {}) of {} micro batches of {} sequences of {} tokens; saved "
                      "per micro batch: {:.1f} MiB\n\n",
                      static_cast<double>(offsets_of(m).end) * 1e-6, s.steps, s.steps - s.warm_up_steps,
                      s.loop_of("offload-auto").steps, s.accumulation, m.micro_batch, m.sequence,
                      train::mib(saved_by(m, s.element_bytes()).micro_batch_bytes));
}

std::string facts_text(const device_facts &facts) {
    const std::string note = facts.note.empty() ? "" : facts.note + "\n";
    return fmt::format("\ndevice: {}; attention: {}; collectives: {}\n{}", facts.name, facts.attention,
                       facts.collectives, note);
}

json facts_json(const device_facts &facts) {
    return {{"device_name", facts.name},
            {"attention", facts.attention},
            {"collectives", facts.collectives},
            {"note", facts.note}};
}

std::string tables_text(const std::vector<train::mode_result> &results, const step_runs &runs) {
    const std::vector<run_details> &details = runs.details();
    train::extra_column predicted{"predicted, ms", {}};
    train::extra_column difference{"difference, %", {}};
    for (size_t i = 0; i < results.size(); ++i) {
        std::optional<double> percent = difference_part(results[i], details[i]);
        if (percent) {
            *percent *= 100;
        }
        predicted.cells.push_back(number_or_dash(details[i].predicted_ms, "{:.1f}"));
        difference.cells.push_back(number_or_dash(percent, "{:+.1f}"));
    }
    return train::table(results, {predicted, difference}) + memory_table(results, details) + facts_text(runs.facts());
}

std::string json_text(const step_settings &s, const std::vector<train::mode_result> &results, const step_runs &runs) {
    const std::vector<run_details> &details = runs.details();
    const step_shape shape = s.shape_at(s.shape.micro_batch);
    json all{{"context", train::context_json(s)}, {"modes", json::array()}};
    json &context = all["context"];
    context["device"] = s.device;
    context.update(facts_json(runs.facts()));
    context["gpus"] = s.gpus;
    context["model"] = s.model;
    context["experts"] = shape.experts;
    context["top_k"] = shape.top_k;
    context["weights"] = offsets_of(shape).end;
    context["saved_bytes_per_micro_batch"] = saved_by(shape, s.element_bytes()).micro_batch_bytes;
    for (size_t i = 0; i < results.size(); ++i) {
        json row = train::result_json(results[i]);
        row["predicted_ms"] = or_null(details[i].predicted_ms);
        row["difference"] = or_null(difference_part(results[i], details[i]));
        row["device_memory_bytes"] = memory_json(details[i]);
        all["modes"].push_back(std::move(row));
    }
    return all.dump(2) + "\n";
}

}  // namespace step
