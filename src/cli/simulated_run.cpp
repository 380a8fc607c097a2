#include "cli/simulated_run.hpp"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>

#include "cli/plan_report.hpp"
#include "simulate/step_player.hpp"

namespace ebb::cli {

namespace {

constexpr size_t k_unusual_steps = 2;

// Keeps what was held when most was. Called after every event of the step.
class memory_watch {
public:
    void look(step_player &player) {
        const ebb_statistics s = player.statistics();
        host_peak_bytes_ = std::max(host_peak_bytes_, s.pinned_used_bytes);
        if (s.device_held_bytes <= held_bytes_) {
            return;
        }
        held_bytes_ = s.device_held_bytes;
        kept_bytes_ = s.kept_bytes;
        source_bytes_ = s.source_bytes;
        recomputed_bytes_ = player.recomputed_bytes();
        reloaded_bytes_ = s.device_held_bytes - s.kept_bytes - s.source_bytes - recomputed_bytes_;
    }

    void report(const workload &w, simulated_run &to) const {
        to.device_peak_parts = fixed_parts_of(w);
        const bool staged = w.budget.mode == memory_mode::staging;
        to.device_peak_parts.push_back({"kept tensors", kept_bytes_});
        to.device_peak_parts.push_back({"tensors on their way out", source_bytes_});
        to.device_peak_parts.push_back({staged ? "staging" : "reloaded tensors", reloaded_bytes_});
        to.device_peak_parts.push_back({"recomputed tensors", recomputed_bytes_});
        to.device_peak_bytes = w.step.model.fixed_bytes + held_bytes_;
        to.host_peak_bytes = host_peak_bytes_;
    }

private:
    uint64_t held_bytes_ = 0, host_peak_bytes_ = 0;
    uint64_t kept_bytes_ = 0, source_bytes_ = 0, reloaded_bytes_ = 0, recomputed_bytes_ = 0;
};

play_options play_options_of(const workload &w, const plan &p, const simulation_options &o) {
    play_options play;
    play.machine = to_sim_machine(w.machine);
    play.machine.host_bytes = std::max(play.machine.host_bytes, w.budget.host_bytes);
    if (o.alone) {
        play.machine.gpus_per_host_memory = 1;
    }
    play.mode = w.budget.mode;
    play.fixed = &p;
    play.core.min_offload_bytes = 1;
    play.core.sample_every = 1;
    play.core.chunk_bytes = w.budget.d2h.chunk_bytes;
    play.core.device_budget_bytes = w.budget.device_bytes - std::min(w.budget.device_bytes, w.step.model.fixed_bytes);
    play.core.staging_bytes = p.staging_bytes;
    play.core.host_bytes = w.budget.host_bytes;
    return play;
}

simulated_step difference(const ebb_statistics &before, const ebb_statistics &now) {
    simulated_step s;
    s.hidden_ns = static_cast<double>(now.hidden_ns - before.hidden_ns);
    s.exposed_ns = static_cast<double>(now.exposed_ns - before.exposed_ns);
    s.copied_out_bytes = now.d2h_bytes - before.d2h_bytes;
    s.copied_back_bytes = now.h2d_bytes - before.h2d_bytes;
    s.late_reloads = now.reloads_on_demand - before.reloads_on_demand;
    s.reloads = s.late_reloads + now.reloads_prefetched - before.reloads_prefetched;
    return s;
}

simulated_step mean_of_usual(const std::vector<simulated_step> &steps) {
    const size_t first = std::min(k_unusual_steps, steps.size() - 1);
    const auto count = static_cast<double>(steps.size() - first);
    simulated_step mean = steps.back();
    mean.step_ns = mean.waiting_ns = mean.hidden_ns = mean.exposed_ns = 0;
    for (size_t i = first; i < steps.size(); ++i) {
        mean.step_ns += steps[i].step_ns / count;
        mean.waiting_ns += steps[i].waiting_ns / count;
        mean.hidden_ns += steps[i].hidden_ns / count;
        mean.exposed_ns += steps[i].exposed_ns / count;
    }
    return mean;
}

}  // namespace

result<simulated_run> simulate(const workload &w, const chosen_plan &chosen, const simulation_options &o) {
    memory_watch watch;
    step_player *watched = nullptr;
    play_options play = play_options_of(w, chosen.what, o);
    play.after_event = [&] { watch.look(*watched); };
    result<std::unique_ptr<step_player>> made = step_player::make(w.step.model, play);
    if (!made.ok()) {
        return made.why();
    }
    const std::unique_ptr<step_player> player = std::move(made).value();
    watched = player.get();
    std::mt19937_64 random(o.seed);
    std::uniform_real_distribution<double> slower(1 - o.jitter, 1 + o.jitter);
    simulated_run run;
    ebb_statistics before = player->statistics();
    for (uint64_t i = 0; i < o.steps; ++i) {
        const double factor = o.jitter > 0 ? slower(random) : 1;
        player->slow_down(factor);
        const result<step_player::step_result> played = player->play();
        if (!played.ok()) {
            return played.why();
        }
        if (ebb_progress(player->runtime()) != EBB_OK) {
            return status{code::internal, ebb_last_error()};
        }
        const ebb_statistics now = player->statistics();
        simulated_step step = difference(before, now);
        step.step_ns = played.value().step_ns;
        step.waiting_ns = step.step_ns - factor * (chosen.predicted.compute_ns + chosen.predicted.recompute_ns);
        step.no_room = played.value().no_slot;
        run.steps.push_back(step);
        before = now;
    }
    run.usual = mean_of_usual(run.steps);
    watch.report(w, run);
    run.log_hash = player->device().log_hash();
    return run;
}

}  // namespace ebb::cli
