#include "policy/policy_comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "policy/baseline.hpp"

namespace ebb::baselines {

namespace {

double in_gib(uint64_t bytes) {
    return static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0);
}

// The best of all save sets and settings; the least memory where nothing fits.
result<policy_row> best_of(const baseline &what, const built_workload &w, uint64_t budget_bytes) {
    const sim_machine machine = to_sim_machine(w.machine);
    policy_row found;
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
status find_budget(const built_workload &w, double budget_part, policy_comparison &c) {
    c.least_bytes = ~uint64_t{0};
    for (const std::unique_ptr<baseline> &b : make_all_baselines()) {
        const result<policy_row> r = best_of(*b, w, 0);
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
        c.least_bytes + static_cast<uint64_t>(budget_part * static_cast<double>(c.keep_bytes - c.least_bytes));
    c.budget_bytes = std::min(c.budget_bytes, w.machine.device_bytes.value);
    return {};
}

policy_row row_of(const char *name, const ebb_run &run, uint64_t budget_bytes) {
    policy_row r;
    r.system = name;
    const uint64_t all_bytes = run.kept + run.offloaded + run.recomputed;
    r.chosen = all_bytes == 0 ? "-"
                              : fmt::format("{:.1f} kept, {:.1f} moved, {:.1f} again", in_gib(run.kept),
                                            in_gib(run.offloaded), in_gib(run.recomputed));
    r.step_ns = run.step_ns;
    r.device_bytes = run.device_peak_bytes;
    r.host_bytes = run.host_peak_bytes;
    r.fits = run.feasible && run.no_slot == 0 && run.device_peak_bytes <= budget_bytes;
    return r;
}

status run_all_of_ebb(const built_workload &w, policy_comparison &c) {
    const step_model &model = w.by_save_set[0].model;
    struct one {
        const char *name;
        result<ebb_run> run;
        ebb_run *to;
        policy_row *row;
    };
    one all[] = {
        {"Ebb", run_planned(model, w.machine, memory_mode::one_pool, c.budget_bytes), &c.one_pool, &c.ebb_row},
        {"Ebb staging", run_planned(model, w.machine, memory_mode::staging, c.budget_bytes), &c.staging,
         &c.staging_row},
        {"Ebb automatic", run_automatic(model, w.machine, c.budget_bytes), &c.automatic, &c.automatic_row},
    };
    for (one &o : all) {
        if (!o.run.ok()) {
            return {o.run.why().code(), fmt::format("{}, {}: {}", c.name, o.name, o.run.why().text())};
        }
        *o.to = o.run.value();
        *o.row = row_of(o.name, *o.to, c.budget_bytes);
    }
    return {};
}

}  // namespace

const policy_row *policy_comparison::best() const noexcept {
    const policy_row *found = nullptr;
    for (const policy_row &r : rivals) {
        if (r.fits && (found == nullptr || r.step_ns < found->step_ns)) {
            found = &r;
        }
    }
    return found;
}

double policy_comparison::ratio_of(const policy_row &row) const noexcept {
    const policy_row *b = best();
    return b == nullptr || !row.fits ? 0 : row.step_ns / b->step_ns;
}

result<policy_comparison> compare_policies(const policy_workload &what) {
    const result<built_workload> built = build_workload(what);
    if (!built.ok()) {
        return built.why();
    }
    const built_workload &w = built.value();
    policy_comparison c;
    c.name = what.name;
    EBB_TRY(find_budget(w, what.budget_part, c));
    std::vector<std::unique_ptr<baseline>> all = make_all_baselines();
    all.insert(all.begin(), make_recompute());
    all.insert(all.begin(), make_keep());
    for (const std::unique_ptr<baseline> &b : all) {
        result<policy_row> r = best_of(*b, w, c.budget_bytes);
        if (!r.ok()) {
            return r.why();
        }
        c.rivals.push_back(std::move(r).value());
    }
    EBB_TRY(run_all_of_ebb(w, c));
    return c;
}

}  // namespace ebb::baselines
