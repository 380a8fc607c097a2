// Automatic mode: what the policy leaves open is planned once the record's times and the links' rates are measured, and
// planned anew, with slower links, where a plan did not keep its word. A plan changes at step boundaries only.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/runtime.hpp"
#include "schedule/planner.hpp"
#include "schedule/record_model.hpp"

namespace ebb {

namespace {

// What a transformer of 126 layers with 20 tensors each and some micro-batches has.
constexpr double k_events_of_full_effort = 2e4;
constexpr uint32_t k_most_plans = 12;  // for one record
// Part of each transfer's time that is taken to cost step time, hidden or not. Collectives lose 8 to 11 % of their rate
// beside copies out (nccl #2218), kernels that are bound by memory a part of theirs; how much of a step that is nobody
// tells the runtime. So plans are made for several, the first of them first, and the one whose whole step was the
// shortest is followed.
constexpr double k_move_costs[] = {0.02, 0, 0.1, 0.5};
constexpr uint32_t k_trials = 4;
// The shorter of two steps counts for each, since what disturbs a step makes it longer. Another plan must be shorter by
// that part.
constexpr uint32_t k_trial_steps = 2;
constexpr double k_shorter_part = 0.002;
// A reload that came late: the next plan counts on less.
constexpr double k_late_factor = 0.95;
// Part of a step that waits may be longer than predicted before that counts as late.
constexpr double k_late_part = 0.005;

}  // namespace

// Called at each step boundary, with what was measured so far read.
void runtime::consider_planning() {
    if (record_.empty()) {
        return;
    }
    if (options_.measure_steps || plan_wanted_) {
        remember(timer_->poll());
    }
    if (plan_to_adopt_.has_value()) {
        follow(std::move(plan_to_adopt_->placement), plan_to_adopt_->staging_bytes);
        plan_to_adopt_.reset();
    }
    if (!plan_wanted_ || plan_given_) {
        return;
    }
    if (plan_count_ == 0) {
        if (!timer_->complete() || samples_->open_count() != 0) {
            return;
        }
        work_ns_ = timer_->work_ns();
        collective_ns_ = timer_->collective_ns();
        make_plan();
    } else if (proof_step_ != 0 && samples_->open_count() == 0) {
        proof_step_ = 0;
        compare_with_plan();
    }
}

plan_budget runtime::measured_budget() const {
    plan_budget b;
    // A direction that had nothing to do: as the device measured it when it was made, else like the other's; without
    // any, nothing had to move.
    const link_rates &known = device_.info().measured_link;
    const auto rate = [](const measured_link &in_steps, uint64_t at_make) {
        const double measured = in_steps.bytes_per_second();
        return measured > 0 ? measured : static_cast<double>(at_make);
    };
    const double d2h = rate(d2h_measured_, known.d2h_bytes_per_second);
    const double h2d = rate(h2d_measured_, known.h2d_bytes_per_second);
    b.d2h.bytes_per_second = (d2h > 0 ? d2h : std::max(h2d, 1e9)) * d2h_trust_;
    b.h2d.bytes_per_second = (h2d > 0 ? h2d : std::max(d2h, 1e9)) * h2d_trust_;
    b.move_cost = k_move_costs[trial_ < k_trials ? trial_ : best_.trial];
    b.mode = options_.lent_allocator ? memory_mode::one_pool : memory_mode::staging;
    b.device_bytes = budget_bytes();
    b.host_bytes = arena_->statistics().cap_bytes;
    b.fixed_staging_bytes = options_.lent_allocator ? 0 : options_.staging_bytes;
    return b;
}

void runtime::make_plan() {
    const record_model seen = model_of(record_, work_ns_, collective_ns_);
    ++plan_count_;
    if (status s = evaluator::check(seen.model); !s.ok()) {
        add_note("automatic mode makes no plan: the recorded step cannot be planned: " + s.text());
        return;
    }
    plan_budget budget = measured_budget();
    // A step boundary of the caller's: the time to plan grows with the record, so a huge one is searched less.
    const auto events = static_cast<double>(std::max<size_t>(seen.model.events.size(), 1));
    planner search(seen.model, planner_options{std::min(1.0, k_events_of_full_effort / events)});
    planned made = search.make(budget);
    if (!made.feasible) {
        add_note(fmt::format("automatic mode makes no plan: nothing fits a device budget of {} bytes; {} would do",
                             budget.device_bytes, made.smallest_feasible_bytes));
        return;
    }
    predicted_ = settle_staging(seen.model, made, budget);
    search_exactly(search, made, budget);
    note_plan(made);
    adopt_plan(seen, made.chosen);
}

void runtime::note_plan(const planned &made) {
    const auto ns = [](double time_ns) { return static_cast<uint64_t>(std::llround(time_ns)); };
    plan_counters &p = counters_.plan;
    p = {};
    p.made = plan_count_;
    p.predicted_ns = ns(predicted_.step_ns);
    p.bound_ns = ns(made.bound_ns);
    p.keep_ns = made.keep_all.feasible ? ns(made.keep_all.step_ns) : 0;
    p.recompute_ns = made.recompute_all.feasible ? ns(made.recompute_all.step_ns) : 0;
    p.predicted_exposed_ns = ns(predicted_.exposed_d2h_ns + predicted_.exposed_h2d_ns);
}

// The search counts bytes; where slots really lie may take a little more staging.
evaluation runtime::settle_staging(const step_model &model, planned &made, plan_budget budget) {
    budget.exact_slots = true;
    evaluator judge(model);
    plan tried = made.chosen;
    evaluation best = judge.evaluate(made.chosen, budget);
    for (int more = 1; more <= 4 && budget.mode == memory_mode::staging && budget.fixed_staging_bytes == 0; ++more) {
        if (best.feasible && best.step_ns <= made.predicted.step_ns * 1.001) {
            break;
        }
        tried.staging_bytes += record_.largest_movable_bytes() / 2;
        const evaluation next = judge.evaluate(tried, budget);
        if (next.feasible && (!best.feasible || next.step_ns < best.step_ns)) {
            best = next;
            made.chosen = tried;
        }
    }
    return best;
}

// Where slots of different sizes leave gaps that no size of staging closes, a search that knows of them finds better.
// It takes longer, so it is not the first.
void runtime::search_exactly(planner &search, planned &made, plan_budget budget) {
    const bool fits = predicted_.feasible;
    if (budget.mode == memory_mode::one_pool || (fits && predicted_.step_ns <= made.predicted.step_ns * 1.001)) {
        return;
    }
    budget.exact_slots = true;
    const planned exact = search.make(budget);
    if (exact.feasible && (!fits || exact.predicted.step_ns < predicted_.step_ns)) {
        made = exact;
        predicted_ = exact.predicted;
    } else if (!fits) {
        predicted_ = made.predicted;
    }
}

void runtime::adopt_plan(const record_model &seen, const plan &chosen) {
    std::vector<tensor_placement> placement(record_.entries().size(), tensor_placement::keep);
    for (size_t t = 0; t < seen.entry_of.size(); ++t) {
        placement[seen.entry_of[t]] = chosen.placement[t];
    }
    follow(std::move(placement), chosen.staging_bytes);
}

void runtime::follow(std::vector<tensor_placement> placement, uint64_t staging_bytes) {
    // A view goes where its bytes go: kept, it would hold the storage that the other save gives up.
    for (size_t e = 0; e < placement.size(); ++e) {
        const uint32_t parent = record_.entries()[e].parent;
        placement[e] = parent == k_no_index ? placement[e] : placement[parent];
    }
    if (placement == planned_ && staging_bytes == planned_staging_bytes_) {
        return;
    }
    planned_ = std::move(placement);
    planned_staging_bytes_ = staging_bytes;
    record_.place(planned_);
    record_.derive();
    remember(retake_staging(staging_bytes));
    forecast();
    steps_since_plan_ = 0;
    trial_steps_ = 0;
}

// The step that begins is sampled: what it waits for is compared with what the plan said.
void runtime::prove_plan() {
    proof_step_ = step_number_;
    d2h_proof_ = h2d_proof_ = {};
    span_begun_ = false;
    plan_span_ns_ = 0;
    plan_exposed_d2h_ns_ = plan_exposed_h2d_ns_ = 0;
}

// From the first call of that step until what is on its stream when the step ends.
void runtime::begin_span(stream_id stream) {
    if (span_begun_ || proof_step_ != step_number_ || !training() || !clock_of(stream)) {
        return;
    }
    time_samples::sample what;
    what.kind = sample_kind::span;
    result<time_samples::sample_id> begun = samples_->begin(stream, what);
    span_begun_ = begun.ok();
    span_ = begun.ok() ? lane_sample{true, begun.value(), name_table::k_root} : lane_sample{};
}

void runtime::end_span() {
    if (span_begun_ && span_.taken) {
        if (step_captured_) {
            samples_->cancel(span_.id);  // its stream may be part of a capture now
        } else {
            sample_end(span_);
        }
        span_ = {};
    }
}

// Copies and slots of the steps before are gone, and nobody has a claim on one, or it stays as it is.
status runtime::retake_staging(uint64_t size_bytes) {
    if (options_.lent_allocator || options_.staging_memory != nullptr || staging_->used_bytes() != 0) {
        return {};
    }
    retire_staging();
    staging_->set_cap(size_bytes);
    return staging_->retake_block(size_bytes);
}

// What waited longer than was predicted was too late. Its link delivers less than it did, and that is what the next
// plan counts on; or it is trusted less.
void runtime::compare_with_plan() {
    ++counters_.plan.compared;
    counters_.plan.exposed_ns = plan_exposed_d2h_ns_ + plan_exposed_h2d_ns_;
    if (plan_given_ || plan_count_ >= k_most_plans) {
        return;
    }
    if (trial_ < k_trials && plan_span_ns_ != 0) {
        trial_span_ns_ = trial_steps_ == 0 ? plan_span_ns_ : std::min(trial_span_ns_, plan_span_ns_);
        if (++trial_steps_ < k_trial_steps) {
            steps_since_plan_ = 0;  // the next step is sampled, too
            return;
        }
    }
    if (trial_ != 0 && trial_ < k_trials) {
        const auto least_ns = static_cast<double>(best_.span_ns) * (1 - k_shorter_part);
        if (trial_steps_ != 0 && static_cast<double>(trial_span_ns_) <= least_ns) {
            keep_as_best();
        }
        return try_next_plan();
    }
    const double allowed_ns = k_late_part * predicted_.step_ns;
    const auto lost = [allowed_ns](measured_link &known, const measured_link &now, double &trust, double waited_ns,
                                   double predicted_ns) {
        if (waited_ns <= predicted_ns + allowed_ns) {
            return false;
        }
        if (now.bytes_per_second() > 0 && now.bytes_per_second() < known.bytes_per_second() * trust) {
            known = now;
            trust = 1;
        } else {
            trust *= k_late_factor;
        }
        return true;
    };
    const bool d2h_late = lost(d2h_measured_, d2h_proof_, d2h_trust_, static_cast<double>(plan_exposed_d2h_ns_),
                               predicted_.exposed_d2h_ns);
    const bool h2d_late = lost(h2d_measured_, h2d_proof_, h2d_trust_, static_cast<double>(plan_exposed_h2d_ns_),
                               predicted_.exposed_h2d_ns);
    if (d2h_late || h2d_late) {
        make_plan();
    } else if (trial_ == 0 && trial_steps_ != 0) {
        keep_as_best();
        try_next_plan();
    }
}

void runtime::keep_as_best() {
    best_ = {planned_, planned_staging_bytes_, predicted_, counters_.plan, trial_span_ns_, trial_};
}

// Those that come out like one that was followed before need no step of their own. After the last one the best is
// followed.
void runtime::try_next_plan() {
    const std::vector<tensor_placement> last = planned_;
    while (++trial_ < k_trials) {
        make_plan();
        if (planned_ != best_.placement && planned_ != last) {
            return;
        }
    }
    predicted_ = best_.predicted;
    counters_.plan = best_.counted;
    follow(best_.placement, best_.staging_bytes);
}

void runtime::forget_plan() {
    plan_wanted_ = std::any_of(record_.entries().begin(), record_.entries().end(),
                               [](const step_record::entry &e) { return e.automatic; });
    plan_given_ = false;
    plan_to_adopt_.reset();
    planned_.clear();
    planned_staging_bytes_ = 0;
    plan_count_ = 0;
    counters_.plan = {};
    proof_step_ = 0;
    trial_ = 0;
    best_ = {};
    d2h_trust_ = h2d_trust_ = 1;
    d2h_measured_ = h2d_measured_ = {};
    const bool timed = plan_wanted_ || options_.measure_steps;
    timer_->reset(timed ? static_cast<uint32_t>(record_.events().size()) : 0,
                  static_cast<uint32_t>(record_.collectives().size()));
}

// ------------------------------------------------------------------------------------------- in and out --

record_model runtime::recorded_model() const {
    const std::vector<double> unknown(record_.events().size(), 0);
    record_model seen = timer_->complete() ? model_of(record_, timer_->work_ns(), timer_->collective_ns())
                                           : model_of(record_, unknown, {});
    for (size_t t = 0; t < seen.entry_of.size(); ++t) {
        seen.model.tensors[t].name = names_.path(record_.entries()[seen.entry_of[t]].key.name);
    }
    return seen;
}

step_model runtime::recorded_saves(std::vector<uint32_t> &view_of) const {
    const record_model seen = recorded_model();
    step_model saves;
    view_of.clear();
    for (size_t e = 0; e < record_.entries().size(); ++e) {
        const step_record::entry &saved = record_.entries()[e];
        step_tensor t;
        if (seen.tensor_of[e] != k_no_index) {
            t = seen.model.tensors[seen.tensor_of[e]];
        } else {
            t.name = names_.path(saved.key.name);
            t.micro_batch = saved.key.micro_batch;
            t.stage = saved.key.stage;
            t.can_keep = t.can_offload = t.can_recompute = true;  // it goes with its bytes
        }
        saves.tensors.push_back(std::move(t));
        view_of.push_back(saved.parent);
    }
    return saves;
}

bool runtime::followed_plan(plan &followed) const {
    followed.placement = planned_;
    followed.staging_bytes = planned_staging_bytes_;
    return !planned_.empty();
}

void runtime::follow_plan(const plan &chosen) {
    plan_given_ = true;
    plan_to_adopt_ = chosen;
}

void runtime::note_sample(const time_samples::sample &s) {
    if (s.kind == sample_kind::span) {
        plan_span_ns_ = s.time_ns;
        return;
    }
    if (s.kind == sample_kind::collective) {
        timer_->collective(s.step, s.place, s.time_ns);
        return;
    }
    name_counters &n = by_name_[s.name];
    const bool transfer = s.kind == sample_kind::d2h || s.kind == sample_kind::h2d;
    (transfer ? n.transfer_ns : n.exposed_ns) += s.time_ns;
    (transfer ? transfer_ns_ : counters_.exposed_ns) += s.time_ns;
    switch (s.kind) {
        case sample_kind::d2h:
            (plan_count_ == 0 ? d2h_measured_ : d2h_proof_).add(s.size_bytes, s.time_ns);
            break;
        case sample_kind::h2d:
            (plan_count_ == 0 ? h2d_measured_ : h2d_proof_).add(s.size_bytes, s.time_ns);
            break;
        case sample_kind::exposed_d2h:
            plan_exposed_d2h_ns_ += s.step == proof_step_ ? s.time_ns : 0;
            break;
        case sample_kind::exposed_h2d:
            plan_exposed_h2d_ns_ += s.step == proof_step_ ? s.time_ns : 0;
            break;
        case sample_kind::collective:
        case sample_kind::span:
            break;
    }
    if (!transfer) {
        timer_->exposed(s.step, s.place, s.time_ns);
    }
}

}  // namespace ebb
