// Steps: matching calls to the record, and what happens between two steps.

#include <algorithm>

#include "runtime/runtime.hpp"

namespace ebb {

status runtime::begin_step(phase p) {
    EBB_TRY(end_step());
    EBB_TRY(progress());  // timings of sampled steps are read, so that their events can be used again
    phase_ = p;
    evaluating_ = p == phase::evaluate;
    sampling_ = false;
    abandon_ended_captures();
    if (!training()) {
        settle();
        return {};
    }
    ++step_number_;
    step_captured_ = any_open_capture();
    position_ = 0;
    window_ = 0;
    waiting_for_slot_ = k_no_index;
    last_use_ = k_no_index;
    ends_seen_ = 0;
    matched_events_ = unknown_events_ = misordered_events_ = 0;
    std::fill(bound_.begin(), bound_.end(), 0);
    std::copy(record_.series_first().begin(), record_.series_first().end(), cursor_.begin());
    if (!step_captured_) {
        if (!record_.empty() && !staging_->block_taken()) {
            take_staging();  // where a capture was in the way
        }
        consider_planning();
    }
    if (!record_.empty()) {
        // Exposed time is measured in each step after a new plan, in one of sample_every, and while times are taken for
        // a plan.
        const bool timed = plan_count_ == 0 && !step_captured_ && timer_->begin(step_number_);
        sampling_ = timed || steps_since_plan_ % options_.sample_every == 0;
        ++steps_since_plan_;
        if (sampling_ && plan_count_ != 0 && !planned_.empty() && proof_step_ == 0) {
            prove_plan();
        }
    }
    settle();
    return {};
}

status runtime::end_step() {
    end_span();
    drop_all_unclaimed();
    // What is claimed across the boundary is expected by nobody: the window starts anew.
    for (index c = 0; claims_.live_count() != 0 && c < claims_.capacity(); ++c) {
        if (claims_.live(c)) {
            activations_[claims_[c].activation].expected_uses = 0;
        }
    }
    staging_->restart();
    recomputing_ = false;
    recompute_bytes_ = 0;
    recompute_asked_.clear();
    recompute_due_ = false;
    if (!training() || step_number_ == 0) {
        return {};
    }
    if (trace_.empty()) {
        return {};
    }
    ++counters_.steps;
    if (step_captured_) {
        // It was enqueued once and runs whenever its graph is launched: nothing is learned from it.
        timer_->drop();
        proof_step_ = 0;
        trace_.clear();
        return {};
    }
    counters_.sampled_steps += sampling_ ? 1 : 0;
    const uint32_t differing = unknown_events_ + misordered_events_;
    if (differing != 0) {
        proof_step_ = 0;
    }
    if (timer_->timing()) {
        if (differing == 0 && matched_events_ == record_.events().size()) {
            timer_->end();
        } else {
            timer_->drop();
        }
    }
    counters_.order_mismatches += differing;
    if (record_.empty()) {
        adopt_trace();
    } else if (differing == 0) {
        has_last_mismatch_ = false;
    } else if (misordered_events_ == 0 && matched_events_ == record_.events().size()) {
        // All of the record in its order, and more: the larger record serves the smaller steps too, since what is
        // missing is skipped.
        adopt_trace();
    } else if (has_last_mismatch_ && last_mismatch_.same_calls(trace_)) {
        adopt_trace();  // two steps running differ in the same way
    } else {
        std::swap(last_mismatch_, trace_);
        has_last_mismatch_ = true;
    }
    trace_.clear();
    if (record_learned_) {
        record_learned_ = false;
        record_.derive();
        take_staging();
        forecast();
    }
    return {};
}

void runtime::adopt_trace() {
    const bool first = record_.empty();
    record_.adopt(trace_);
    record_learned_ = false;
    has_last_mismatch_ = false;
    bound_.assign(record_.entries().size(), 0);
    cursor_.assign(record_.series_count(), k_no_index);
    steps_since_plan_ = 0;
    forget_plan();
    if (first) {
        learn_budget();
    }
    take_staging();
    if (first) {
        for (const std::string &pattern : policy_.unmatched_rules()) {
            add_note("policy: no activation of the first step matched '" + pattern + "': is the name right?");
        }
    }
    forecast();
}

// What we held plus what was free at the first step's peak, less 5 % of the capacity.
void runtime::learn_budget() {
    if (options_.device_budget_bytes != 0) {
        return;
    }
    const uint64_t reserve = device_.memory().capacity_bytes / 20;
    const uint64_t there = record_peak_bytes_ + free_at_peak_bytes_;
    learned_budget_bytes_ = std::max(there > reserve ? there - reserve : 0, 2 * record_.largest_bytes());
}

// Staging is taken once. Given, or half of the budget: as much for sources on their way out as for reloads on
// their way in; the planner will choose better. Where everything fits there is nothing to stage, but for saves of the
// staged form: they all go through it, whether they would fit or not.
void runtime::take_staging() {
    if (options_.lent_allocator || staging_->block_taken() || record_.largest_movable_bytes() == 0) {
        return;
    }
    const uint64_t one_slot =
        std::max(record_.largest_movable_bytes(), options_.max_activation_bytes) + 2 * staging::k_alignment;
    uint64_t wanted = options_.staging_bytes;
    if (wanted == 0) {
        const bool all_fits = !staged_seen_ && record_.peak_saved_bytes() + one_slot <= budget_bytes();
        wanted = all_fits ? one_slot : std::max(one_slot, budget_bytes() / 2);
        wanted = std::min(wanted, record_.peak_saved_bytes() + one_slot);
    }
    retire_staging();
    staging_->set_cap(wanted);
    remember(staging_->take_block(wanted));
}

void runtime::retire_staging() {
    waits_.clear();
    staging_->prepare_block(waits_);
    bool idle = true;
    for (const ticket w : waits_) {
        status waited = lines_.synchronize(w);  // growth at the end of the recorded step may block
        idle = idle && waited.ok();
        remember(std::move(waited));
    }
    if (!idle) {
        staging_->strand_retired();
    }
}

void runtime::forecast() {
    step_record::budget b;
    const uint64_t staging_bytes = options_.lent_allocator ? 0 : staging_->held_bytes();
    b.device_bytes = budget_bytes() > staging_bytes ? budget_bytes() - staging_bytes : 0;
    b.source_cap_bytes = source_cap_bytes();
    b.keep_last = options_.keep_last;
    record_.forecast(b);
    passed_.assign(record_.reloads().size(), 0);
    reserve_.reset();
}

// ------------------------------------------------------------------------------------------------ matching --

void runtime::match_produce(index i, bool movable, bool last_kept) {
    activation &a = activations_[i];
    if (!training() || step_number_ == 0) {
        return;
    }
    a.traced = trace_.produce({a.name, a.micro_batch, a.stage}, a.layer, a.size_bytes, movable, last_kept);
    a.traced_step = step_number_;
    if (record_.empty()) {
        return;
    }
    const uint32_t e = find_entry({a.name, a.micro_batch, a.stage});
    if (e == k_no_index) {
        ++unknown_events_;
        return;
    }
    step_record::entry &entry = record_.at(e);
    cursor_[entry.series] = entry.next_occurrence;
    a.entry = e;
    a.next_use = entry.first_use;
    a.next_reload = entry.first_reload;
    a.released_at = entry.released_at;
    bound_[e] = activations_.handle(i);
    if (!follow_to(entry.produced_at)) {
        ++misordered_events_;
    }
}

// What became of it: forecasts depend on it.
void runtime::note_memory(const activation &a, bool movable, keep_reason reason) {
    if (a.traced == k_no_index) {
        return;
    }
    held_memory memory = held_memory::nothing;
    if ((a.state == activation_state::offloading && !a.staged) || reason == keep_reason::last) {
        memory = held_memory::source;
    } else if (a.state == activation_state::kept && !a.staged) {
        memory = held_memory::kept;
    }
    uint32_t traced_parent = k_no_index;
    uint32_t parent_entry = k_no_index;
    if (a.parent != k_no_index && activations_[a.parent].traced_step == step_number_) {
        traced_parent = activations_[a.parent].traced;
        parent_entry = activations_[a.parent].entry;
    }
    trace_.place(a.traced, memory, traced_parent);
    if (a.entry != k_no_index && !capturing()) {
        record_learned_ |= record_.learn(a.entry, a.size_bytes, movable, memory, parent_entry);
    }
}

// The entry that the next call with this key stands for. Nearly always it is that of the next event.
uint32_t runtime::find_entry(const call_key &key) const noexcept {
    if (position_ < record_.events().size() && !record_.events()[position_].use) {
        const uint32_t next = record_.events()[position_].entry;
        const step_record::entry &entry = record_.entries()[next];
        if (entry.key == key && cursor_[entry.series] == next) {
            return next;
        }
    }
    const uint32_t series = record_.find(key);
    return series == k_no_index ? k_no_index : cursor_[series];
}

void runtime::match_use(index i, bool claimed) {
    activation &a = activations_[i];
    if (recomputing_) {
        match_input(i);
        return;
    }
    if (!training() || a.traced_step != step_number_ || a.traced == k_no_index) {
        return;  // not of this step
    }
    trace_.use(a.traced, claimed);
    if (record_.empty()) {
        return;
    }
    const uint32_t event = a.next_use;
    if (event == k_no_index) {
        ++unknown_events_;
        return;
    }
    a.next_use = record_.events()[event].next_use;
    consume_reloads(i, event);
    last_use_ = event;
    if (!follow_to(event)) {
        ++misordered_events_;
    }
}

// Of those that the record knows.
void runtime::time_known_use(index i, stream_id consumer) {
    const activation &a = activations_[i];
    if (!capturing() && !recomputing_ && a.traced_step == step_number_ && a.traced != k_no_index) {
        time_point(consumer);
    }
}

void runtime::time_point(stream_id stream) {
    if (timer_->timing()) {
        if (clock_of(stream)) {
            timer_->point(stream);
        } else {
            timer_->drop();
        }
    }
}

// The calling thread's time is that of a stream which has nothing else to do: its events are over when they are
// recorded.
bool runtime::clock_of(stream_id &stream) {
    if (stream != k_calling_thread) {
        return true;
    }
    if (!thread_clock_.has_value()) {
        result<stream_id> made = device_.create_stream(stream_role::compute);
        if (!made.ok()) {
            return false;
        }
        thread_clock_ = made.value();
    }
    stream = *thread_clock_;
    return true;
}

// Its reloads up to that event have come, or will not come any more.
void runtime::consume_reloads(index i, uint32_t until_event) {
    activation &a = activations_[i];
    const index b = body_of(i);
    const std::vector<step_record::reload> &reloads = record_.reloads();
    for (; a.next_reload != k_no_index && reloads[a.next_reload].event <= until_event;
         a.next_reload = reloads[a.next_reload].next) {
        if (passed_[a.next_reload] == step_number_) {
            passed_[a.next_reload] = 0;
            activation &body = activations_[b];
            body.expected_uses -= body.expected_uses != 0 ? 1 : 0;
            static_cast<void>(drop_unexpected(b));  // read where it lies (reload_into), for the last time
        }
    }
}

// Read to compute another again: the use that the record knows of comes later.
void runtime::match_input(index i) {
    const activation &a = activations_[i];
    if (following() && a.traced_step == step_number_ && position_ != 0 && a.next_reload != k_no_index &&
        !record_.reloads()[a.next_reload].own) {
        consume_reloads(i, position_ - 1);
    }
}

// What lies between is missing from this step: it is skipped. False when the event was skipped before, or came before.
bool runtime::follow_to(uint32_t event) {
    recompute_due_ = false;
    ends_seen_ = 0;
    if (event < position_) {
        return false;
    }
    for (uint32_t skipped = position_; skipped < event; ++skipped) {
        expire_use(skipped);
    }
    position_ = event + 1;
    ++matched_events_;
    return true;
}

// A use that the window expected will not come (or comes out of order): its prefetch makes room.
void runtime::expire_use(uint32_t event) {
    for (uint32_t r = record_.reload_at(event); r < record_.reload_at(event + 1); ++r) {
        expire_reload(r);
    }
}

void runtime::expire_reload(uint32_t number) {
    if (passed_[number] != step_number_) {
        return;
    }
    passed_[number] = 0;
    const index i = activations_.find(bound_[record_.reloads()[number].entry]);
    if (i == k_no_index) {
        return;
    }
    const index b = body_of(i);
    activation &body = activations_[b];
    body.expected_uses -= body.expected_uses != 0 ? 1 : 0;
    counters_.prefetches_dropped += drop_unexpected(b) ? 1 : 0;
}

// Uses of this one that the window had passed, since the slot was there: it looks at them again. Returns how many.
uint32_t runtime::forget_expected(index i) {
    const activation &a = activations_[i];
    if (!following() || a.traced_step != step_number_) {
        return 0;  // its uses are not the record's
    }
    uint32_t forgotten = 0;
    for (uint32_t r = a.next_reload; r != k_no_index; r = record_.reloads()[r].next) {
        if (passed_[r] == step_number_) {
            passed_[r] = 0;
            ++forgotten;
        }
    }
    look_again_from(a);
    return forgotten;
}

void runtime::look_again_from(const activation &a) {
    if (a.next_reload < window_ && following() && a.traced_step == step_number_) {
        window_ = a.next_reload;
        waiting_for_slot_ = k_no_index;
    }
}

// --------------------------------------------------------------------------------------------- recompute --

status runtime::recompute_begin(uint64_t size_bytes) {
    if (recomputing_) {
        return {code::wrong_state, "ebb_recompute_begin inside another: end that one first, they do not nest"};
    }
    recomputing_ = true;
    recompute_bytes_ = size_bytes;
    make_room();
    // Room for what is computed: prefetches can be had again. Where the record knows of it, what it reads is among
    // them, and room was left; otherwise its reloads want slots, too.
    const bool expected = !recompute_asked_.empty() && following();
    while (!unclaimed_.empty() && (held_bytes() > budget_bytes() ||
                                   (!expected && staging_->used_bytes() + size_bytes > staging_->cap_bytes()))) {
        static_cast<void>(drop_last_unclaimed());
    }
    settle();
    return {};
}

status runtime::recompute_end() {
    if (!recomputing_) {
        return {code::wrong_state, "ebb_recompute_end without ebb_recompute_begin"};
    }
    recomputing_ = false;
    recompute_bytes_ = 0;
    for (const uint64_t handle : recompute_asked_) {
        const index i = activations_.find(handle);
        if (i != k_no_index && !activations_[i].recomputed) {
            activations_[i].recomputed = true;  // it is there now, in the caller's memory
            recomputed_bytes_ += activations_[i].size_bytes;
        }
    }
    recompute_asked_.clear();
    recompute_due_ = false;
    settle();
    return {};
}

}  // namespace ebb
