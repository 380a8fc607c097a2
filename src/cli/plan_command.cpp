#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/command_line.hpp"
#include "cli/commands.hpp"
#include "cli/exit_status.hpp"
#include "cli/model_arguments.hpp"
#include "cli/output.hpp"
#include "cli/plan_report.hpp"
#include "cli/progress.hpp"
#include "cli/table_printer.hpp"
#include "cli/workload.hpp"
#include "observe/plan_json.hpp"
#include "schedule/planner.hpp"

namespace ebb::cli {

namespace {

using nlohmann::ordered_json;

struct plan_arguments {
    model_arguments model;
    bool max_micro_batch = false;
    double effort = 1;
    std::string out;
    bool json = false;
};

struct plan_outcome {
    planned made;
    shadow_prices prices;
    uint64_t largest_micro_batch = 0;  // 0: not asked for
};

constexpr const char *k_plan_examples =
    "  ebb plan --model llama-3.1-405b --micro-batch 2 --sequence 8192 --shards 128 --format fp4\n"
    "  ebb plan --model llama-3.1-405b --sequence 8192 --shards 128 --device-bytes 150GiB --max-micro-batch\n"
    "  ebb plan --machine h100-pcie5 --model ./recorded.json --device-bytes 40GiB --out plan.json\n"
    "  ebb plan --model deepseek-v3-671b --micro-batch 8 --shards 128 \\\n"
    "      --policy query_wa_proj=offload,kv_wa_proj=offload,mlpwi_*=offload,moe_mlpwi_*=offload\n";

planned plan_of(const workload &w, double effort) {
    return planner(w.step.model, {effort}).make(w.budget);
}

// The largest that fits: doubled until it does not, then halved in between. Leaves the workload at it.
status find_largest_micro_batch(const plan_arguments &a, workload &w, planned &made, progress &shown) {
    constexpr uint64_t k_most = 1'000'000;
    constexpr double k_most_tokens = 1e9;
    const auto limit = std::min(k_most, static_cast<uint64_t>(k_most_tokens) / w.settings.sequence);
    const auto fits = [&](uint64_t micro_batch, bool &answer) -> status {
        shown.show(fmt::format("trying micro-batch {}", micro_batch));
        EBB_TRY(set_micro_batch(w, micro_batch));
        planned tried = plan_of(w, a.effort);
        answer = tried.feasible;
        if (answer || micro_batch == 1) {
            made = std::move(tried);
        }
        return {};
    };
    uint64_t fitting = 0;
    uint64_t failing = 1;
    for (bool yes = true; yes && failing <= limit;) {
        EBB_TRY(fits(failing, yes));
        fitting = yes ? failing : fitting;
        failing = yes ? failing * 2 : failing;
    }
    failing = std::min(failing, limit + 1);
    while (fitting != 0 && failing - fitting > 1) {
        const uint64_t middle = fitting + (failing - fitting) / 2;
        bool yes = false;
        EBB_TRY(fits(middle, yes));
        (yes ? fitting : failing) = middle;
    }
    return set_micro_batch(w, std::max<uint64_t>(fitting, 1));
}

std::string infeasible_text(const planned &made, const workload &w) {
    if (made.smallest_feasible_bytes == 0) {
        return fmt::format(
            "no device budget is enough within {} GiB of host memory: what cannot be computed again must "
            "go there or stay",
            in_gib(w.budget.host_bytes));
    }
    return fmt::format(
        "the step does not fit into {} GiB of device memory ({} GiB are always held); a plan was found "
        "from {} GiB on: --device-bytes {}",
        in_gib(w.budget.device_bytes), in_gib(w.step.model.fixed_bytes), in_gib(made.smallest_feasible_bytes),
        made.smallest_feasible_bytes);
}

// ---------------------------------------------------------------------------------------------------- the text --

// Fills in a row, or says below the table why there is none.
class plan_rows {
public:
    explicit plan_rows(const workload &step) : w_(step) {}

    void add(const std::string &name, const evaluation &e) {
        if (!e.feasible) {
            table_.add({name, "-"});
            notes_ += fmt::format("{} does not fit: {}\n", name, shortage_text(e, w_.step.model));
            return;
        }
        const double exposed_ns = e.exposed_d2h_ns + e.exposed_h2d_ns + e.exposed_collective_ns;
        table_.add({name, in_ms(e.step_ns), tokens(e.step_ns), tflops(e.step_ns), in_gib(e.device_peak_bytes),
                    in_gib(e.host_peak_bytes), in_ms(exposed_ns), in_ms(e.recompute_ns)});
    }
    void add_bound(double bound_ns) {
        table_.add({"lower bound", in_ms(bound_ns), tokens(bound_ns), tflops(bound_ns)});
    }
    [[nodiscard]] std::string text() const { return table_.text() + notes_; }

private:
    [[nodiscard]] std::string tokens(double step_ns) const {
        return w_.model ? fmt::format("{:.0f}", w_.tokens_per_second(step_ns)) : "";
    }
    [[nodiscard]] std::string tflops(double step_ns) const {
        return w_.model ? fmt::format("{:.1f}", w_.tflops(step_ns)) : "";
    }

    const workload &w_;
    table_printer table_{
        {"<", "step\nms", "tokens/s", "TFLOP/s", "device peak\nGiB", "host peak\nGiB", "exposed\nms", "recompute\nms"}};
    std::string notes_;
};

std::vector<named_bytes> peak_parts(const workload &w, uint64_t peak_bytes) {
    std::vector<named_bytes> parts = fixed_parts_of(w);
    parts.push_back({"the step's tensors", peak_bytes - w.step.model.fixed_bytes});
    return parts;
}

std::string plan_text(const plan_outcome &o, const workload &w) {
    const planned &made = o.made;
    std::string text = describe(w);
    if (o.largest_micro_batch != 0) {
        text += fmt::format("largest micro-batch that fits: {}\n", o.largest_micro_batch);
    }
    plan_rows rows(w);
    rows.add("this plan", made.predicted);
    rows.add("keep", made.keep_all);
    rows.add("recompute", made.recompute_all);
    rows.add("moving nothing", made.moving_nothing);
    rows.add_bound(made.bound_ns);
    text += "\n" + rows.text();
    const evaluation &e = made.predicted;
    text += fmt::format(
        "\ngap to the bound: {:.2f} %; exposed: waiting for room {} ms, for reloads {} ms, for collectives {} ms\n",
        100 * made.gap(), in_ms(e.exposed_d2h_ns), in_ms(e.exposed_h2d_ns), in_ms(e.exposed_collective_ns));
    if (made.chosen.staging_bytes != 0) {
        text += fmt::format("staging: {} GiB of it\n", in_gib(made.chosen.staging_bytes));
    }
    text +=
        fmt::format("worth of a little more: {:.4g} ms per GiB of device memory, {:.4g} ms per GB/s out, {:.4g} in\n",
                    o.prices.device_seconds_per_gib * 1e3, o.prices.d2h_seconds_per_gb_per_second * 1e3,
                    o.prices.h2d_seconds_per_gb_per_second * 1e3);
    text += "\n" + parts_text(peak_parts(w, e.device_peak_bytes));
    return text + "\n" + placements_text(made.chosen, w.step.model);
}

// ---------------------------------------------------------------------------------------------------- the JSON --

ordered_json plan_command_json(const plan_outcome &o, const workload &w) {
    const planned &made = o.made;
    ordered_json all = workload_json(w);
    if (o.largest_micro_batch != 0) {
        all["largest_micro_batch"] = o.largest_micro_batch;
    }
    all["feasible"] = made.feasible;
    if (!made.feasible) {
        all["smallest_feasible_gib"] =
            made.smallest_feasible_bytes == 0 ? ordered_json() : ordered_json(to_gib(made.smallest_feasible_bytes));
    } else {
        all["predicted"] = evaluation_json(made.predicted, w);
        all["staging_gib"] = to_gib(made.chosen.staging_bytes);
    }
    all["bound_ms"] = to_ms(made.bound_ns);
    all["gap"] = made.feasible ? ordered_json(made.gap()) : ordered_json();
    all["keep"] = evaluation_json(made.keep_all, w);
    all["recompute"] = evaluation_json(made.recompute_all, w);
    all["moving_nothing"] = evaluation_json(made.moving_nothing, w);
    ordered_json parts = ordered_json::object();
    for (const named_bytes &part : w.step.fixed_parts) {
        parts[part.name] = to_gib(part.size_bytes);
    }
    all["fixed_gib"] = to_gib(w.step.model.fixed_bytes);
    all["fixed_parts_gib"] = parts;
    if (made.feasible) {
        all["shadow_prices"] = {{"device_seconds_per_gib", o.prices.device_seconds_per_gib},
                                {"d2h_seconds_per_gb_per_second", o.prices.d2h_seconds_per_gb_per_second},
                                {"h2d_seconds_per_gb_per_second", o.prices.h2d_seconds_per_gb_per_second}};
        all["placements"] = placements_json(made.chosen, w.step.model);
    }
    all["evaluations"] = made.evaluations;
    return all;
}

// ------------------------------------------------------------------------------------------------- the command --

status run_plan(const plan_arguments &a, terminal &io) {
    result<workload> loaded = make_workload(a.model, policy_use::save_set);
    if (!loaded.ok()) {
        return loaded.why();
    }
    workload &w = loaded.value();
    if (a.max_micro_batch && !w.model) {
        return {code::invalid_argument,
                "--max-micro-batch is for a model by its dimensions; a recorded step has its sizes"};
    }
    progress shown(io);
    plan_outcome o;
    if (a.max_micro_batch) {
        EBB_TRY(find_largest_micro_batch(a, w, o.made, shown));
        o.largest_micro_batch = o.made.feasible ? w.settings.micro_batch : 0;
    } else {
        shown.show("planning");
        o.made = plan_of(w, a.effort);
    }
    if (o.made.feasible) {
        shown.show("what a little more would be worth");
        o.prices = planner(w.step.model, {a.effort}).prices(o.made, w.budget);
    }
    shown.clear();
    for (const std::string &note : w.step.notes) {
        io.err << "ebb plan: " << note << '\n';
    }
    if (a.json) {
        print_json(io, plan_command_json(o, w));
    }
    if (!o.made.feasible) {
        return {code::out_of_device_memory, infeasible_text(o.made, w)};
    }
    if (!a.json) {
        print_text(io, plan_text(o, w));
    }
    return a.out.empty() ? status() : write_file(a.out, plan_to_json(o.made.chosen, w.step.model));
}

}  // namespace

int plan_command(const arguments &args, terminal &io) {
    command_line line(
        "ebb plan",
        "Chooses for every tensor of a training step whether it is kept, offloaded or recomputed, so that "
        "the step is as short as it can be within the budgets; and says what that gives, what else would, "
        "and what no plan can beat.");
    plan_arguments a;
    a.model.declare(line, "Given one, what it saves is kept or offloaded, and the rest is recomputed.");
    line.group("Search and output");
    line.flag("--max-micro-batch", a.max_micro_batch, "find the largest micro-batch that fits, and its plan");
    line.number("--effort", a.effort, 0.01, 1000, "more looks longer for a better plan");
    line.text("--out", a.out, "FILE", "write the plan, which ebb simulate --plan reads");
    line.flag("--json", a.json, "print one JSON object");
    line.examples(k_plan_examples);
    if (const std::optional<int> ended = line.parse(args, io)) {
        return *ended;
    }
    if (const status wrong = a.model.check(line); !wrong.ok()) {
        return line.refuse(wrong.text(), io);
    }
    const status outcome = run_plan(a, io);
    return outcome.ok() ? k_done : line.fail(outcome, io);
}

}  // namespace ebb::cli
