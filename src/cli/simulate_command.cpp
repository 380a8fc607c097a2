#include <fmt/format.h>

#include "cli/chosen_plan.hpp"
#include "cli/command_line.hpp"
#include "cli/commands.hpp"
#include "cli/exit_status.hpp"
#include "cli/model_arguments.hpp"
#include "cli/output.hpp"
#include "cli/plan_report.hpp"
#include "cli/progress.hpp"
#include "cli/simulated_run.hpp"
#include "cli/table_printer.hpp"
#include "cli/workload.hpp"

namespace ebb::cli {

namespace {

using nlohmann::ordered_json;

struct simulate_arguments {
    model_arguments model;
    std::string plan_path;
    simulation_options how;
    bool json = false;
};

constexpr const char *k_simulate_examples =
    "  ebb simulate --model llama-3.1-405b --micro-batch 2 --sequence 8192 --shards 128 --format fp4\n"
    "  ebb simulate --machine h100-pcie5 --model generic-dense --micro-batch 2 --shards 8 --policy offload\n"
    "  ebb simulate --model deepseek-v3-671b --micro-batch 4 --shards 128 \\\n"
    "      --policy query_wa_proj=offload,kv_wa_proj=offload,mlpwi_*=offload,moe_mlpwi_*=offload\n"
    "  ebb simulate --machine h100-pcie5 --model ./recorded.json --plan plan.json\n";

class compared_table {
public:
    void add(const std::string &what, const std::string &unit, double predicted, double simulated, int digits) {
        const std::string difference =
            predicted != 0 ? fmt::format("{:+.2f} %", 100 * (simulated - predicted) / predicted) : "";
        table_.add({what, unit, fmt::format("{:.{}f}", predicted, digits), fmt::format("{:.{}f}", simulated, digits),
                    difference});
    }
    void add_simulated(const std::string &what, const std::string &unit, double simulated, int digits) {
        table_.add({what, unit, "", fmt::format("{:.{}f}", simulated, digits), ""});
    }
    [[nodiscard]] std::string text() const { return table_.text(); }

private:
    table_printer table_{{"<", "<unit", "predicted", "simulated", "difference"}};
};

double waiting_ns(const evaluation &e) {
    return e.exposed_d2h_ns + e.exposed_h2d_ns + e.exposed_collective_ns;
}

std::string simulated_table(const workload &w, const evaluation &e, const simulated_run &run) {
    const simulated_step &s = run.usual;
    compared_table table;
    table.add("step", "ms", to_ms(e.step_ns), to_ms(s.step_ns), 2);
    if (w.model) {
        table.add("throughput", "tokens/s", w.tokens_per_second(e.step_ns), w.tokens_per_second(s.step_ns), 0);
        table.add("throughput", "TFLOP/s", w.tflops(e.step_ns), w.tflops(s.step_ns), 1);
    }
    table.add("device peak", "GiB", to_gib(e.device_peak_bytes), to_gib(run.device_peak_bytes), 2);
    table.add("host peak", "GiB", to_gib(e.host_peak_bytes), to_gib(run.host_peak_bytes), 2);
    table.add("copied out", "GiB", to_gib(e.offloaded_bytes), to_gib(s.copied_out_bytes), 2);
    table.add("copied back", "GiB", to_gib(e.reloaded_bytes), to_gib(s.copied_back_bytes), 2);
    table.add("waiting", "ms", to_ms(waiting_ns(e)), to_ms(s.waiting_ns), 2);
    table.add_simulated("copies exposed", "ms", to_ms(s.exposed_ns), 2);
    table.add_simulated("copies hidden", "ms", to_ms(s.hidden_ns), 2);
    table.add_simulated("late reloads", "", static_cast<double>(s.late_reloads), 0);
    return table.text();
}

std::string simulation_text(const workload &w, const chosen_plan &chosen, const simulated_run &run) {
    std::string text = describe(w) + chosen.called + "\n\n" + simulated_table(w, chosen.predicted, run);
    text += "\n" + parts_text(run.device_peak_parts) + "\nsteps, ms:";
    for (const simulated_step &s : run.steps) {
        text += " " + in_ms(s.step_ns);
    }
    text += fmt::format(
        " (the first is recorded: its reloads are on demand)\n"
        "waiting is all beyond work and recompute: copies, collectives, memory bandwidth that copies take; copies "
        "exposed "
        "are\nthose that the runtime made compute wait for.\nreloads per step: {}, late {}, without room {}\n",
        run.usual.reloads, run.usual.late_reloads, run.usual.no_room);
    return text;
}

ordered_json simulated_step_json(const simulated_step &s) {
    return {{"step_ms", to_ms(s.step_ns)},
            {"waiting_ms", to_ms(s.waiting_ns)},
            {"hidden_ms", to_ms(s.hidden_ns)},
            {"exposed_ms", to_ms(s.exposed_ns)},
            {"copied_out_gib", to_gib(s.copied_out_bytes)},
            {"copied_back_gib", to_gib(s.copied_back_bytes)},
            {"reloads", s.reloads},
            {"late_reloads", s.late_reloads},
            {"reloads_without_room", s.no_room}};
}

ordered_json simulation_json(const workload &w, const chosen_plan &chosen, const simulated_run &run) {
    ordered_json all = workload_json(w);
    all["plan"] = chosen.called;
    ordered_json simulated = simulated_step_json(run.usual);
    simulated.update(rate_json(w, run.usual.step_ns));
    simulated["device_peak_gib"] = to_gib(run.device_peak_bytes);
    ordered_json parts = ordered_json::object();
    for (const named_bytes &part : run.device_peak_parts) {
        parts[part.name] = to_gib(part.size_bytes);
    }
    simulated["device_peak_parts_gib"] = parts;
    simulated["host_peak_gib"] = to_gib(run.host_peak_bytes);
    all["simulated"] = simulated;
    all["predicted"] = evaluation_json(chosen.predicted, w);
    all["steps"] = ordered_json::array();
    for (const simulated_step &s : run.steps) {
        all["steps"].push_back(simulated_step_json(s));
    }
    all["staging_gib"] = to_gib(chosen.what.staging_bytes);
    all["placements"] = placements_json(chosen.what, w.step.model);
    all["event_log_hash"] = fmt::format("{:016x}", run.log_hash);
    return all;
}

status run_simulation(simulate_arguments &a, terminal &io) {
    const result<workload> loaded = make_workload(a.model, policy_use::start);
    if (!loaded.ok()) {
        return loaded.why();
    }
    const workload &w = loaded.value();
    progress shown(io);
    shown.show("planning");
    const result<chosen_plan> chosen = choose_plan(a.model, a.plan_path, w);
    if (!chosen.ok()) {
        return chosen.why();
    }
    shown.show(fmt::format("simulating {} steps", a.how.steps));
    a.how.alone = a.model.alone;
    const result<simulated_run> run = simulate(w, chosen.value(), a.how);
    shown.clear();
    if (!run.ok()) {
        return run.why();
    }
    for (const std::string &note : w.step.notes) {
        io.err << "ebb simulate: " << note << '\n';
    }
    a.json ? print_json(io, simulation_json(w, chosen.value(), run.value()))
           : print_text(io, simulation_text(w, chosen.value(), run.value()));
    return {};
}

}  // namespace

int simulate_command(const arguments &args, terminal &io) {
    command_line line(
        "ebb simulate",
        "Plays a training step through the real runtime on a simulated machine, a few times, and compares "
        "what came out with what was predicted.");
    simulate_arguments a;
    constexpr uint64_t k_most_steps = 10'000;
    a.model.declare(line, "automatic: the planner's plan. Anything else is done as it says.");
    line.group("Simulation and output");
    line.text("--plan", a.plan_path, "FILE", "a plan, as ebb plan --out writes it, instead of a policy");
    line.count("--steps", a.how.steps, 3, k_most_steps, "to play; figures are the mean without the first two");
    line.number("--jitter", a.how.jitter, 0, 0.9, "the work of each step takes up to that part more or less");
    line.count("--seed", a.how.seed, 0, ~uint64_t{0}, "of the jitter; the same seed gives the same steps");
    line.flag("--json", a.json, "print one JSON object");
    line.examples(k_simulate_examples);
    if (const std::optional<int> ended = line.parse(args, io)) {
        return *ended;
    }
    if (const status wrong = a.model.check(line); !wrong.ok()) {
        return line.refuse(wrong.text(), io);
    }
    if (!a.plan_path.empty() && !a.model.is_automatic()) {
        return line.refuse("--plan and --policy exclude each other: both say what happens to which tensor", io);
    }
    const status outcome = run_simulation(a, io);
    return outcome.ok() ? k_done : line.fail(outcome, io);
}

}  // namespace ebb::cli
