#include "cli/workload.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantity.hpp"
#include "base/text_file.hpp"
#include "cli/output.hpp"
#include "cli/recorded_policy.hpp"
#include "model/profile_library.hpp"
#include "model/step_rates.hpp"
#include "observe/step_model_json.hpp"
#include "schedule/evaluator.hpp"

namespace ebb::cli {

namespace {

status named_failure(const std::string &option, const status &why) {
    return {why.code(), option + ": " + why.text()};
}

// Where the slower link is at its rate; larger copies gain nothing and are waited for longer.
uint64_t usual_chunk_bytes(const machine_profile &machine) {
    constexpr uint64_t k_least = uint64_t{16} << 20U;
    constexpr uint64_t k_most = uint64_t{64} << 20U;
    uint64_t chunk_bytes = k_least;
    for (const link_profile *link : {&machine.d2h, &machine.h2d}) {
        for (const sim_link::point &p : link->curve.value) {
            if (p.fraction < 1) {
                continue;
            }
            chunk_bytes = std::max(chunk_bytes, p.size_bytes);
            break;
        }
    }
    return std::min(chunk_bytes, k_most);
}

plan_budget budget_of(const model_arguments &a, const machine_profile &machine) {
    plan_budget budget;
    const machine_links links = to_plan_links(machine, a.chunk_bytes.value_or(usual_chunk_bytes(machine)), !a.alone);
    budget.d2h = links.d2h;
    budget.h2d = links.h2d;
    budget.collective_loss = machine.collective_loss.value;
    budget.mode = a.memory;
    budget.device_bytes = a.device_bytes.value_or(machine.device_bytes.value);
    budget.host_bytes = a.host_bytes.value_or(pinnable_bytes(machine));
    budget.exact_slots = a.memory == memory_mode::staging;
    return budget;
}

// In the words of step_builder, where "" is all recomputed.
std::string save_set_text(const model_arguments &a) {
    return a.is_automatic() ? "" : a.policy == "recompute" ? "remat" : a.policy;
}

status build_from_dimensions(workload &w) {
    const result<step_rates> rates = rates_of(w.machine, w.settings);
    if (!rates.ok()) {
        return rates.why();
    }
    result<built_step> built = build_step(*w.model, w.settings, rates.value());
    if (!built.ok()) {
        return built.why();
    }
    w.step = std::move(built).value();
    return {};
}

status take_recorded(const model_arguments &a, policy_use use, step_model recorded, workload &w) {
    if (!a.given_dimension.empty()) {
        return {code::invalid_argument, fmt::format("{} is for a model by its dimensions; {} is a recorded step, which "
                                                    "has its sizes",
                                                    a.given_dimension, a.model)};
    }
    w.step.model = std::move(recorded);
    w.title = "recorded step " + a.model;
    return apply_recorded_policy(a.policy, use == policy_use::save_set && !a.is_automatic(), w.step);
}

}  // namespace

double workload::tokens_per_second(double step_ns) const noexcept {
    return step.tokens * 1e9 / step_ns;
}

double workload::tflops(double step_ns) const noexcept {
    return step.model_flops / step_ns / 1e3;
}

result<std::optional<step_model>> read_recorded_step(const std::string &name_or_path) {
    if (!is_profile_path(name_or_path)) {
        return std::optional<step_model>();
    }
    const result<std::string> text = read_text_file(name_or_path);
    if (!text.ok()) {
        return text.why();
    }
    if (!looks_like_step_model(text.value())) {
        return std::optional<step_model>();
    }
    result<step_model> read = step_model_from_json(text.value(), name_or_path);
    if (!read.ok()) {
        return read.why();
    }
    if (const status sound = evaluator::check(read.value()); !sound.ok()) {
        return status{code::invalid_argument, name_or_path + ": " + sound.text()};
    }
    return std::optional<step_model>(std::move(read).value());
}

result<workload> make_workload(const model_arguments &a, policy_use use) {
    workload w;
    result<machine_profile> machine = find_machine(a.machine);
    if (!machine.ok()) {
        return named_failure("--machine", machine.why());
    }
    w.machine = std::move(machine).value();
    w.budget = budget_of(a, w.machine);
    result<std::optional<step_model>> recorded = read_recorded_step(a.model);
    if (!recorded.ok()) {
        return named_failure("--model", recorded.why());
    }
    if (recorded.value()) {
        EBB_TRY(take_recorded(a, use, std::move(*recorded.value()), w));
        return w;
    }
    result<model_profile> model = find_model(a.model);
    if (!model.ok()) {
        return named_failure("--model", model.why());
    }
    w.model = std::move(model).value();
    w.title = w.model->name;
    w.settings = a.settings;
    w.settings.policy = save_set_text(a);
    w.settings.fixed_save_set = use == policy_use::save_set && !a.is_automatic();
    EBB_TRY(build_from_dimensions(w));
    return w;
}

status set_micro_batch(workload &w, uint64_t micro_batch) {
    w.settings.micro_batch = micro_batch;
    return build_from_dimensions(w);
}

std::string describe(const workload &w) {
    std::string text = fmt::format("{} on {}", w.title, w.machine.name);
    if (w.model) {
        const step_settings &s = w.settings;
        text += fmt::format(": {} x {} tokens", s.micro_batch, s.sequence);
        text += s.micro_batches > 1 ? fmt::format(", {} micro-batches", s.micro_batches) : "";
        text += s.shards > 1 ? fmt::format(", {} shards", s.shards) : "";
        text += s.pipeline_stages > 1 ? fmt::format(", stage {} of {}", s.pipeline_stage, s.pipeline_stages) : "";
        text += fmt::format(", {}", number_format_name(s.gemm_format));
    }
    const plan_budget &b = w.budget;
    text +=
        fmt::format("\nbudget: device {} GiB in {}, host {} GiB; link {:.0f} GB/s out, {:.0f} in, in pieces of {}\n",
                    in_gib(b.device_bytes), b.mode == memory_mode::one_pool ? "one pool" : "a pool and staging",
                    in_gib(b.host_bytes), b.d2h.bytes_per_second / 1e9, b.h2d.bytes_per_second / 1e9,
                    format_bytes(b.d2h.chunk_bytes));
    return text;
}

}  // namespace ebb::cli
