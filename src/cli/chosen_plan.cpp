#include "cli/chosen_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text_file.hpp"
#include "cli/output.hpp"
#include "cli/plan_report.hpp"
#include "observe/plan_json.hpp"
#include "schedule/planner.hpp"

namespace ebb::cli {

namespace {

// Staging of a plan that does not say: the size that gives the shortest step, of a few.
void choose_staging(const workload &w, evaluator &judge, plan &p) {
    if (std::count(p.placement.begin(), p.placement.end(), tensor_placement::offload) == 0) {
        return;
    }
    uint64_t largest_bytes = 0;
    for (const step_tensor &t : w.step.model.tensors) {
        largest_bytes = std::max(largest_bytes, t.size_bytes);
    }
    const uint64_t pool_bytes = w.budget.device_bytes - std::min(w.budget.device_bytes, w.step.model.fixed_bytes);
    plan best = p;
    double best_ns = 0;
    for (uint64_t size_bytes = largest_bytes; size_bytes != 0 && size_bytes < pool_bytes;
         size_bytes += std::max(largest_bytes, size_bytes / 4)) {
        p.staging_bytes = size_bytes;
        const evaluation &e = judge.evaluate(p, w.budget);
        if (e.feasible && (best_ns == 0 || e.step_ns < best_ns)) {
            best = p;
            best_ns = e.step_ns;
        }
    }
    p = best;
}

// The least device budget with which a plan fits; 0 if there is none.
uint64_t least_device_bytes(const workload &w, evaluator &judge, const plan &p) {
    plan_budget budget = w.budget;
    const auto fits = [&](uint64_t device_bytes) {
        budget.device_bytes = device_bytes;
        return judge.evaluate(p, budget).feasible;
    };
    uint64_t high = w.step.model.fixed_bytes + p.staging_bytes;
    for (const step_tensor &t : w.step.model.tensors) {
        high += 2 * t.size_bytes;
    }
    if (!fits(high)) {
        return 0;
    }
    uint64_t low = w.budget.device_bytes;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        (fits(middle) ? high : low) = middle;
    }
    return high;
}

status does_not_fit(const workload &w, evaluator &judge, const chosen_plan &chosen) {
    const evaluation e = chosen.predicted;
    std::string advice = "--policy automatic finds a plan that fits, if there is one";
    if (const uint64_t least = e.missing_on_host ? 0 : least_device_bytes(w, judge, chosen.what); least != 0) {
        advice += fmt::format("; this one needs --device-bytes {}", as_argument(least));
    }
    return {e.missing_on_host ? code::out_of_host_memory : code::out_of_device_memory,
            fmt::format("{} does not fit: {}; {}", chosen.called, shortage_text(e, w.step.model), advice)};
}

result<chosen_plan> planners_choice(const workload &w) {
    const planned made = planner(w.step.model).make(w.budget);
    if (made.feasible) {
        return chosen_plan{"automatic", made.chosen, made.predicted};
    }
    return status{code::out_of_device_memory,
                  made.smallest_feasible_bytes == 0
                      ? "no device budget is enough with this much host memory"
                      : fmt::format("no plan fits into {} GiB of device memory; one was found from {} GiB on: "
                                    "--device-bytes {}",
                                    in_gib(w.budget.device_bytes), in_gib(made.smallest_feasible_bytes),
                                    as_argument(made.smallest_feasible_bytes))};
}

result<plan> read_plan(const std::string &path, const step_model &model) {
    const result<std::string> text = read_text_file(path);
    if (!text.ok()) {
        return status{text.why().code(), "--plan: " + text.why().text()};
    }
    return plan_from_json(text.value(), model, path);
}

}  // namespace

result<chosen_plan> choose_plan(const model_arguments &a, const std::string &plan_path, const workload &w) {
    if (plan_path.empty() && a.is_automatic()) {
        return planners_choice(w);
    }
    evaluator judge(w.step.model);
    chosen_plan chosen;
    if (plan_path.empty()) {
        chosen.called = "policy " + a.policy;
        chosen.what = w.step.save_set;
        if (w.budget.mode == memory_mode::staging) {
            choose_staging(w, judge, chosen.what);
        }
    } else {
        chosen.called = "plan " + plan_path;
        result<plan> read = read_plan(plan_path, w.step.model);
        if (!read.ok()) {
            return read.why();
        }
        chosen.what = std::move(read).value();
    }
    chosen.predicted = judge.evaluate(chosen.what, w.budget);
    return chosen.predicted.feasible ? result<chosen_plan>(chosen) : does_not_fit(w, judge, chosen);
}

}  // namespace ebb::cli
