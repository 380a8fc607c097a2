#include "simulate/published_ours.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "schedule/evaluator.hpp"
#include "schedule/planner.hpp"
#include "simulate/step_player.hpp"

namespace ebb {

namespace {

constexpr double k_ours_gib_bytes = 1024.0 * 1024.0 * 1024.0;
// The rule: the least device memory with which the plan is that close to what it would be with any amount of it.
constexpr double k_ours_part_of_best = 0.9995;
constexpr uint64_t k_ours_memory_step_bytes = uint64_t{64} << 20U;
constexpr uint64_t k_ours_chunk_bytes = uint64_t{64} << 20U;
constexpr int k_ours_steps = 4;

const published_row &best_row_of(uint32_t table) {
    const published_row *best = &published_row_of(table, 1);
    for (const published_row &row : published_rows()) {
        if (row.table == table && row.tflops > best->tflops) {
            best = &row;
        }
    }
    return *best;
}

// Copies alone, as the predictions of the published rows have them: rates of the machine, no latency.
plan_budget ours_budget(const machine_profile &machine) {
    plan_budget budget;
    budget.d2h = {machine.d2h.bytes_per_second.value, 0, k_ours_chunk_bytes};
    budget.h2d = {machine.h2d.bytes_per_second.value, 0, k_ours_chunk_bytes};
    budget.host_bytes = pinnable_bytes(machine);
    budget.device_bytes = machine.device_bytes.value;
    return budget;
}

// The least multiple of a step above `low` for which `holds`, which holds for all that is larger; at most `high`.
template <class Holds>
uint64_t least_ours(uint64_t low, uint64_t high, const Holds &holds) {
    while (high - low > k_ours_memory_step_bytes) {
        const uint64_t middle = low + (high - low) / 2;
        (holds(middle) ? high : low) = middle;
    }
    return high;
}

struct ours_played {
    double step_ns = 0;
    uint64_t peak_bytes = 0;
};

class ours_planning {
public:
    ours_planning(const built_step &step, const plan_budget &budget) : step_(step), budget_(budget) {
        all_bytes_ = step.model.fixed_bytes;
        for (const step_tensor &t : step.model.tensors) {
            all_bytes_ += t.size_bytes;
        }
    }

    // What lives when everything of the save set is copied out where it is made and back where it is used: room for
    // anything more lets a copy take longer.
    uint64_t least_lifetimes_bytes() {
        evaluator judge(step_.model);
        plan_budget b = budget_;
        return least_ours(step_.model.fixed_bytes, 2 * all_bytes_, [&](uint64_t device_bytes) {
            b.device_bytes = device_bytes;
            return judge.evaluate(step_.save_set, b).feasible;
        });
    }

    planned with(uint64_t device_bytes) {
        budget_.device_bytes = device_bytes;
        return planner(step_.model).make(budget_);
    }

    planned with_least_memory(uint64_t lifetimes_bytes) {
        const double enough_ns = with(2 * all_bytes_).predicted.step_ns / k_ours_part_of_best;
        return with(least_ours(lifetimes_bytes, 2 * all_bytes_, [&](uint64_t bytes) {
            const planned p = with(bytes);
            return p.feasible && p.predicted.step_ns <= enough_ns;
        }));
    }

    result<ours_played> play(const plan &chosen) const {
        play_options options;
        options.machine.host_bytes = budget_.host_bytes;
        options.machine.d2h.bytes_per_second = budget_.d2h.bytes_per_second;
        options.machine.h2d.bytes_per_second = budget_.h2d.bytes_per_second;
        options.machine.host_call_ps = 1;
        options.mode = memory_mode::one_pool;
        options.fixed = &chosen;
        options.core.min_offload_bytes = 1;
        options.core.chunk_bytes = k_ours_chunk_bytes;
        options.core.host_bytes = budget_.host_bytes;
        options.core.device_budget_bytes = budget_.device_bytes - step_.model.fixed_bytes;
        result<std::unique_ptr<step_player>> player = step_player::make(step_.model, options);
        if (!player.ok()) {
            return player.why();
        }
        ours_played usual;
        for (int i = 0; i < k_ours_steps; ++i) {
            const result<step_player::step_result> played = player.value()->play();
            if (!played.ok()) {
                return played.why();
            }
            usual.step_ns = played.value().step_ns;
        }
        usual.peak_bytes = step_.model.fixed_bytes + player.value()->statistics().device_peak_bytes;
        return usual;
    }

private:
    const built_step &step_;
    plan_budget budget_;
    uint64_t all_bytes_ = 0;
};

result<ours_played> play_ours(const built_step &step, const planned &made, const ours_planning &planning,
                              published_ours &to) {
    if (!made.feasible) {
        return status{code::out_of_device_memory, "the published workload does not fit the machine"};
    }
    result<ours_played> played = planning.play(made.chosen);
    if (played.ok()) {
        to.tflops = step.model_flops / played.value().step_ns / 1e3;
        to.predicted_tflops = step.model_flops / made.predicted.step_ns / 1e3;
        to.peak_gib = static_cast<double>(played.value().peak_bytes) / k_ours_gib_bytes;
    }
    return played;
}

// What the published rows move may be moved or kept; what they keep stays, what they compute again is computed again.
void allow_the_same_moves_only(built_step &step) {
    for (size_t t = 0; t < step.model.tensors.size(); ++t) {
        step_tensor &tensor = step.model.tensors[t];
        tensor.can_offload = tensor.can_offload && step.save_set.placement[t] == tensor_placement::offload;
    }
}

result<published_ours> plan_one(const published_workload &workload, const published_report &report, uint32_t table,
                                bool comparable) {
    const published_row &best = best_row_of(table);
    step_settings settings = published_workload::settings_of(best, {});
    settings.fixed_save_set = comparable;
    result<built_step> built = build_step(workload.model_of(best), settings, workload.rates_of(best, {}, report.fit));
    if (!built.ok()) {
        return built.why();
    }
    built_step step = std::move(built).value();
    if (comparable) {
        allow_the_same_moves_only(step);
    }
    published_ours row;
    row.table = table;
    row.comparable = comparable;
    row.best_published_tflops = best.tflops;
    for (const published_prediction &p : report.rows) {
        for (const named_gib &part : p.peak_parts) {
            if (p.published.table == table && part.name == "copy buffers") {
                row.pipelined_rule_gib = std::max(row.pipelined_rule_gib, part.gib);
            }
        }
    }
    ours_planning planning(step, ours_budget(workload.machine()));
    uint64_t lifetimes_bytes = 0;
    planned made;
    if (comparable) {
        lifetimes_bytes = planning.least_lifetimes_bytes();
        made = planning.with_least_memory(lifetimes_bytes);
    } else {
        made = planning.with(workload.machine().device_bytes.value);
    }
    const result<ours_played> played = play_ours(step, made, planning, row);
    if (!played.ok()) {
        return played.why();
    }
    if (comparable) {
        const uint64_t peak_bytes = std::max(played.value().peak_bytes, lifetimes_bytes);
        row.copy_buffers_gib = static_cast<double>(peak_bytes - lifetimes_bytes) / k_ours_gib_bytes;
    }
    return row;
}

}  // namespace

result<std::vector<published_ours>> plan_published(const published_report &report) {
    const result<published_workload> workload = published_workload::load();
    if (!workload.ok()) {
        return workload.why();
    }
    std::vector<published_ours> rows;
    for (const bool comparable : {true, false}) {
        for (const uint32_t table : {1U, 2U}) {
            result<published_ours> row = plan_one(workload.value(), report, table, comparable);
            if (!row.ok()) {
                return row.why();
            }
            rows.push_back(std::move(row).value());
        }
    }
    return rows;
}

}  // namespace ebb
