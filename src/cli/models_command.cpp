#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/command_line.hpp"
#include "cli/commands.hpp"
#include "cli/exit_status.hpp"
#include "cli/output.hpp"
#include "cli/table_printer.hpp"
#include "cli/workload.hpp"
#include "model/layer_graph.hpp"
#include "model/model_size.hpp"
#include "model/profile_library.hpp"
#include "schedule/evaluator.hpp"

namespace ebb::cli {

namespace {

using nlohmann::ordered_json;

constexpr const char *k_role_names[] = {"saved", "companion", "nearly free", "always kept"};

std::string mlp_text(const mlp_profile &m) {
    return m.kind == mlp_profile::type::dense ? fmt::format("dense {}", m.intermediate)
                                              : fmt::format("{} of {} experts of {}, {} shared", m.experts_per_token,
                                                            m.experts, m.intermediate, m.shared_experts);
}

std::string attention_text(const attention_profile &a) {
    return a.kind == attention_profile::type::gqa
               ? fmt::format("{} heads of {}, {} for keys and values", a.heads, a.head_dim, a.kv_heads)
               : fmt::format("{} heads, latent: rank {} for queries, {} for keys and values", a.heads, a.q_lora_rank,
                             a.kv_lora_rank);
}

// Of one layer: what may be saved, for a token.
std::string tensors_text(const model_profile &m, const mlp_profile &mlp) {
    layer_shape shape;
    shape.tokens = 4096;
    shape.sequence = 4096;
    const layer_graph graph = make_layer_graph(m, mlp, shape);
    table_printer table({"<  tensor", "bytes\nper token", "<role", "<other names"});
    for (const layer_tensor &t : graph.tensors) {
        std::string others;
        for (const std::string &alias : t.aliases) {
            others += (others.empty() ? "" : ", ") + alias;
        }
        table.add({"  " + t.name, fmt::format("{:.0f}", static_cast<double>(t.size_bytes) / shape.tokens),
                   k_role_names[static_cast<size_t>(t.role)], others});
    }
    return table.text();
}

std::string model_detail(const model_profile &m) {
    std::string all = m.name + ": " + m.title + "\n";
    all += m.source.empty() ? "" : "source: " + m.source + "\n";
    all += fmt::format("parameters: {:.2f} billion, {:.2f} billion of them active per token\n",
                       parameters_of_model(m) / 1e9, active_parameters(m) / 1e9);
    all += fmt::format("hidden {}, vocabulary {}{}; attention: {}\n", m.hidden, m.vocabulary,
                       m.tied_embeddings ? " (head tied to the embedding)" : "", attention_text(m.attention));
    for (const model_profile::layer_group &group : m.layers) {
        all += fmt::format("\n{} layers, MLP: {}. Names are those of policies:\n{}", group.count, mlp_text(group.mlp),
                           tensors_text(m, group.mlp));
    }
    return all +
           "\nroles: saved tensors are worth a decision; companions go their way; nearly free ones are computed again\n"
           "where they are used, unless a policy names them.\n";
}

std::string recorded_detail(const std::string &path, const step_model &m) {
    uint64_t all_bytes = 0;
    double work_ns = 0;
    size_t recomputable = 0;
    for (const step_tensor &t : m.tensors) {
        all_bytes += t.size_bytes;
        recomputable += t.can_recompute ? 1 : 0;
    }
    for (const step_event &e : m.events) {
        work_ns += e.what == step_event_kind::work ? e.time_ns : 0;
    }
    return fmt::format(
        "{}: a recorded step\n{} tensors of {} GiB in all, {} can be computed again; {} events; {} ms of work; {} GiB "
        "always held\n",
        path, m.tensors.size(), in_gib(all_bytes), recomputable, m.events.size(), in_ms(work_ns),
        in_gib(m.fixed_bytes));
}

status show_model(const std::string &name, bool json, terminal &io) {
    const result<std::optional<step_model>> recorded = read_recorded_step(name);
    if (!recorded.ok()) {
        return recorded.why();
    }
    const result<std::string> text = model_text(name);
    if (!text.ok()) {
        return text.why();
    }
    if (recorded.value()) {
        json ? print_json(io, ordered_json::parse(text.value()))
             : print_text(io, recorded_detail(name, *recorded.value()));
        return {};
    }
    const result<model_profile> model = find_model(name);
    if (!model.ok()) {
        return model.why();
    }
    json ? print_json(io, ordered_json::parse(text.value())) : print_text(io, model_detail(model.value()));
    return {};
}

status list_models(bool json, terminal &io) {
    table_printer table({"<name", "layers", "parameters\n10^9", "active\n10^9", "hidden", "<model"});
    ordered_json list = ordered_json::array();
    for (const std::string_view name : model_names()) {
        const result<model_profile> found = find_model(std::string(name));
        if (!found.ok()) {
            return found.why();
        }
        const model_profile &m = found.value();
        const double parameters = parameters_of_model(m);
        const double active = active_parameters(m);
        list.push_back({{"name", m.name},
                        {"title", m.title},
                        {"layers", m.layer_count()},
                        {"parameters", parameters},
                        {"active_parameters", active},
                        {"hidden", m.hidden}});
        table.add({m.name, fmt::format("{}", m.layer_count()), fmt::format("{:.1f}", parameters / 1e9),
                   fmt::format("{:.1f}", active / 1e9), fmt::format("{}", m.hidden), m.title});
    }
    json ? print_json(io, {{"models", list}}) : print_text(io, table.text());
    return {};
}

}  // namespace

int models_command(const arguments &args, terminal &io) {
    command_line line("ebb models",
                      "The models that are known, or one of them with the tensors of its layers by the names that "
                      "policies use.");
    std::string name;
    bool json = false;
    line.positional("model", name, "name, or a file: dimensions, or a recorded step");
    line.flag("--json", json, "print one JSON object; of one model its file, to start one's own from");
    line.examples(
        "  ebb models\n"
        "  ebb models deepseek-v3-671b\n"
        "  ebb models generic-dense --json > mine.json; ebb models ./mine.json\n");
    if (const std::optional<int> ended = line.parse(args, io)) {
        return *ended;
    }
    const status outcome = name.empty() ? list_models(json, io) : show_model(name, json, io);
    return outcome.ok() ? k_done : line.fail(outcome, io);
}

}  // namespace ebb::cli
