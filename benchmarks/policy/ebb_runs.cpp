#include "policy/ebb_runs.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "schedule/planner.hpp"
#include "simulate/step_player.hpp"

namespace ebb::baselines {

namespace {

// Until times repeat: the record, its first use, and one more.
constexpr int k_planned_steps = 3;
// The record, times of some steps, a plan, and plans after it that trust the links less.
constexpr int k_automatic_steps = 16;
constexpr uint64_t k_least_staging_bytes = 512;
// Planned before the run, so it may look longer than the runtime does at a step boundary.
constexpr double k_effort = 4;

// The smallest copies that reach the links' rate.
uint64_t chunk_bytes_of(const machine_profile &machine) {
    uint64_t chunk_bytes = uint64_t{1} << 20U;
    for (const link_profile *link : {&machine.d2h, &machine.h2d}) {
        for (const sim_link::point &p : link->curve.value) {
            chunk_bytes = std::max(chunk_bytes, p.size_bytes);
        }
    }
    return chunk_bytes;
}

plan_budget budget_of(const machine_profile &machine, memory_mode mode, uint64_t device_budget_bytes) {
    plan_budget b;
    const machine_links links = to_plan_links(machine, chunk_bytes_of(machine));
    b.d2h = links.d2h;
    b.h2d = links.h2d;
    b.collective_loss = machine.collective_loss.value;
    b.mode = mode;
    b.exact_slots = mode == memory_mode::staging;
    b.device_bytes = device_budget_bytes - (mode == memory_mode::staging ? k_least_staging_bytes : 0);
    b.host_bytes = pinnable_bytes(machine);
    return b;
}

struct memory_watch {
    step_player *player = nullptr;
    uint64_t device_bytes = 0, host_bytes = 0;

    void look() {
        if (player == nullptr) {
            return;
        }
        const ebb_statistics s = player->statistics();
        device_bytes = std::max(device_bytes, s.device_held_bytes);
        host_bytes = std::max(host_bytes, s.pinned_used_bytes);
    }
};

void add_bytes(const step_model &model, const plan &p, ebb_run &to) {
    for (size_t t = 0; t < model.tensors.size(); ++t) {
        const tensor_placement placed = p.placement[t];
        uint64_t &sum = placed == tensor_placement::keep      ? to.kept
                        : placed == tensor_placement::offload ? to.offloaded
                                                              : to.recomputed;
        sum += model.tensors[t].size_bytes;
    }
}

play_options play_options_for(const machine_profile &machine, memory_mode mode, uint64_t budget_bytes) {
    play_options play;
    play.machine = to_sim_machine(machine);
    play.mode = mode;
    play.core.chunk_bytes = chunk_bytes_of(machine);
    play.core.device_budget_bytes = budget_bytes;
    play.core.host_bytes = pinnable_bytes(machine);
    return play;
}

// The last step's time and memory.
status play_steps(const step_model &model, play_options play, int steps, ebb_run &to) {
    memory_watch watch;
    play.after_event = [&] { watch.look(); };
    result<std::unique_ptr<step_player>> player = step_player::make(model, play);
    if (!player.ok()) {
        return player.why();
    }
    for (int step = 0; step < steps; ++step) {
        watch.player = step + 1 == steps ? player.value().get() : nullptr;
        const result<step_player::step_result> played = player.value()->play();
        if (!played.ok()) {
            return played.why();
        }
        to.step_ns = played.value().step_ns;
        to.no_slot = played.value().no_slot;
    }
    to.device_peak_bytes = model.fixed_bytes + watch.device_bytes;
    to.host_peak_bytes = watch.host_bytes;
    return {};
}

}  // namespace

result<ebb_run> run_planned(const step_model &model, const machine_profile &machine, memory_mode mode,
                            uint64_t device_budget_bytes) {
    const planned made = planner(model, planner_options{k_effort}).make(budget_of(machine, mode, device_budget_bytes));
    ebb_run run;
    run.feasible = made.feasible;
    if (!made.feasible) {
        return run;
    }
    run.predicted_ns = made.predicted.step_ns;
    run.bound_ns = made.bound_ns;
    add_bytes(model, made.chosen, run);
    play_options play =
        play_options_for(machine, mode, device_budget_bytes - std::min(device_budget_bytes, model.fixed_bytes));
    play.fixed = &made.chosen;
    play.core.min_offload_bytes = 1;
    if (mode == memory_mode::staging) {
        // 0 would leave the size to the runtime.
        play.core.staging_bytes = std::max(made.chosen.staging_bytes, k_least_staging_bytes);
    }
    EBB_TRY(play_steps(model, play, k_planned_steps, run));
    return run;
}

result<ebb_run> run_automatic(const step_model &model, const machine_profile &machine, uint64_t device_budget_bytes) {
    ebb_run run;
    run.feasible = device_budget_bytes > model.fixed_bytes;
    if (!run.feasible) {
        return run;
    }
    play_options play = play_options_for(machine, memory_mode::one_pool, device_budget_bytes - model.fixed_bytes);
    play.core.policy = "auto";
    EBB_TRY(play_steps(model, play, k_automatic_steps, run));
    return run;
}

}  // namespace ebb::baselines
