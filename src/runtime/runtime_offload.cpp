// Offload: deciding the placement, and the copy out of device memory.

#include <fmt/format.h>

#include <algorithm>

#include "runtime/runtime.hpp"

namespace ebb {

status runtime::check_request(const offload_request &r) {
    if (closing_) {
        return {code::wrong_state, "the runtime is being closed"};
    }
    if (r.wish == placement::recompute && !r.can_recompute) {
        return {code::invalid_argument,
                fmt::format("activation '{}': placement recompute needs the flag EBB_OFFLOAD_CAN_RECOMPUTE",
                            names_.path(r.name))};
    }
    for (uint64_t p = 0; p < r.producer_count; ++p) {
        EBB_TRY(check_stream_to_mark(r.producers[p], "producers"));
    }
    if (r.home != r.producers[0]) {
        EBB_TRY(check_stream(r.home, "home"));
    }
    for (uint64_t k = 0; k < r.recompute_from_count; ++k) {
        index i = 0;
        if (status s = find_activation(r.recompute_from[k], i); !s.ok()) {
            return {s.code(), fmt::format("recompute_from[{}]: {}", k, s.text())};
        }
    }
    return {};
}

status runtime::offload(const offload_request &r, offload_outcome &outcome) {
    return naming("offload", r.name, offload_named(r, outcome));
}

status runtime::offload_named(const offload_request &r, offload_outcome &outcome) {
    EBB_TRY(check_request(r));
    EBB_TRY(enter(r.producers, r.producer_count, r.home));
    if (!capturing()) {
        time_point(r.producers[0]);
        begin_span(r.producers[0]);
    }
    const index i = activations_.acquire();
    reset(activations_[i], r);
    ++user_live_;
    try {
        return take(i, r, outcome);
    } catch (...) {
        untake(i);
        throw;
    }
}

status runtime::take(index i, const offload_request &r, offload_outcome &outcome) {
    activation &a = activations_[i];
    status ready = mark_producers(a, r);
    if (ready.ok() && r.staged) {
        ready = r.producers[0] == k_calling_thread ? offload_by_thread(i) : stage(i, r);
    }
    if (!ready.ok()) {
        activations_.release(i);
        --user_live_;
        return ready;
    }
    for (uint64_t k = 0; k < r.recompute_from_count; ++k) {
        const index from = activations_.find(r.recompute_from[k]);
        a.recompute_from.push_back(from);
        ++activations_[from].dependents;
    }
    place(i, r, outcome);
    if (r.can_recompute && a.traced != k_no_index) {
        trace_recompute(i, r);
    }
    outcome.activation = activations_.handle(i);
    settle();
    return {};
}

// Inputs of other steps are not part of this one: what is computed from them is not planned.
void runtime::trace_recompute(index i, const offload_request &r) {
    const activation &a = activations_[i];
    for (const index from : a.recompute_from) {
        const activation &body = activations_[body_of(from)];
        if (body.traced == k_no_index || body.traced_step != step_number_) {
            return;
        }
    }
    trace_.can_recompute(a.traced, r.recompute_cost_ns);
    for (const index from : a.recompute_from) {
        trace_.recompute_input(a.traced, activations_[body_of(from)].traced);
    }
}

// Host memory ran out in the middle of an offload: the call fails and has taken nothing, so the memory stays the
// caller's. What was enqueued still reads it, and is waited for; the deleter does not run.
void runtime::untake(index i) noexcept {
    activation &a = activations_[i];
    static_cast<void>(lines_.synchronize(a.d2h));
    a.deleter = nullptr;
    a.source_held &= a.staged || a.counted_kept || a.state == activation_state::offloading;
    try {
        release_now(i);
    } catch (...) {
        // Not even that: its record stays until close.
    }
}

status runtime::mark_producers(activation &a, const offload_request &r) {
    for (uint64_t p = 0; p < r.producer_count; ++p) {
        ticket point;
        if (status marked = lines_.mark(r.producers[p], point); !marked.ok()) {
            return about("producers", marked);
        }
        EBB_TRY(lines_.add(a.produced, point));
    }
    return {};
}

void runtime::reset(activation &a, const offload_request &r) {
    a.begin();
    a.name = r.name;
    a.layer = r.scope;
    a.micro_batch = r.micro_batch;
    a.stage = r.stage;
    a.data = static_cast<std::byte *>(r.data);
    a.size_bytes = r.size_bytes;
    a.deleter = r.deleter;
    a.deleter_context = r.deleter_context;
    a.home = r.home;
    a.source_held = true;
    a.graph = capturing() ? graphs_.handle(capture_) : 0;
    a.storage_id = r.storage_id;
    a.storage_version = r.storage_version;
}

void runtime::make_counters(name_table::node name) {
    if (by_name_.size() <= name) {
        by_name_.resize(names_.size());
        decided_.resize(names_.size(), placement::by_policy);
    }
}

void runtime::place(index i, const offload_request &r, offload_outcome &outcome) {
    activation &a = activations_[i];
    make_counters(a.name);
    largest_seen_bytes_ = std::max(largest_seen_bytes_, a.size_bytes);
    decision d = decide(r, i);
    const bool movable = d.where == placement::offload;
    match_produce(i, movable, r.wish == placement::by_policy);
    // Only now is its entry known.
    if (d.automatic && a.traced != k_no_index) {
        trace_.allow(a.traced, true);
        d = planned_decision(a, r.can_recompute);
    }
    if (d.where == placement::offload) {
        if (r.wish == placement::by_policy && a.entry != k_no_index &&
            record_.at(a.entry).younger < options_.keep_last) {
            d = {placement::keep, keep_reason::last};
        } else if (!share(r, i) && !start_copy(i, outcome)) {
            d = {placement::keep, outcome.reason};
            note_first_refusal(a, outcome);
        }
    }
    name_counters &n = by_name_[a.name];
    ++n.calls;
    ++counters_.offload_calls;
    n.saved_bytes += a.size_bytes;
    outcome.where = d.where;
    outcome.reason = d.reason;
    switch (d.where) {
        case placement::recompute:
            ++n.recompute;
            ++counters_.recompute_count;
            give_up_uncopied(a);
            break;
        case placement::offload:
            ++n.offloaded;
            ++counters_.offloaded_count;
            break;
        default:
            ++n.kept;
            ++n.kept_by_reason[static_cast<size_t>(d.reason)];
            ++counters_.kept_count;
            keep(a, d.reason);
            break;
    }
    note_memory(a, movable, d.reason);
    if (a.storage_id != 0 && a.state != activation_state::shared && a.state != activation_state::recompute) {
        storages_.insert(i);
        a.in_storage_index = true;
    }
}

// The first of them is worth a line in the log; the report counts all.
void runtime::note_first_refusal(const activation &a, const offload_outcome &outcome) {
    if (refusal_noted_) {
        return;
    }
    refusal_noted_ = true;
    switch (outcome.reason) {
        case keep_reason::host_cap:
            add_note(
                fmt::format("'{}' is kept on the device: pinned host memory is at its cap ({} bytes wanted, {} held, "
                            "cap {}); raise host_bytes (EBB_HOST_BYTES) or the memory limit. Further ones are in "
                            "the report",
                            describe(a), outcome.wanted_bytes, outcome.held_bytes, outcome.cap_bytes));
            break;
        case keep_reason::pinning:
            add_note(fmt::format(
                "'{}' is kept on the device: the system refused to pin host memory ({} bytes wanted, {} "
                "held): {}. Further ones are in the report",
                describe(a), outcome.wanted_bytes, outcome.held_bytes, arena_->last_pinning_status().text()));
            break;
        case keep_reason::capture:
            add_note(fmt::format(
                "'{}' is kept on the device: nothing is pinned while a capture goes on ({} bytes wanted, {} held "
                "of {} pinned before); run a step of that size without capturing first. Further ones are in "
                "the report",
                describe(a), outcome.wanted_bytes, outcome.held_bytes, outcome.cap_bytes));
            break;
        case keep_reason::larger_than_slot:
            add_note(
                fmt::format("'{}' is kept on the device: a slot for it takes {} bytes, staging has {}; raise "
                            "staging_bytes or max_activation_bytes. Further ones are in the report",
                            describe(a), outcome.wanted_bytes, outcome.cap_bytes));
            break;
        default:
            break;  // a copy error is a failure, and named as such
    }
}

runtime::decision runtime::decide(const offload_request &r, index i) {
    const activation &a = activations_[i];
    if (a.size_bytes == 0) {
        return {placement::keep, keep_reason::floor};
    }
    placement where = r.wish;
    if (where == placement::by_policy) {
        where = decided_[a.name];
        if (where == placement::by_policy) {
            where = static_cast<placement>(policy_.decide(names_.path(a.name)).placement);
            decided_[a.name] = where;
        }
        where = where == placement::automatic ? placement::offload : where;
        if (where == placement::offload && a.size_bytes < options_.min_offload_bytes) {
            return {placement::keep, keep_reason::floor};
        }
        if (where == placement::offload && evaluating_ && !r.staged && budget_known() &&
            held_bytes() + a.size_bytes <= budget_bytes()) {
            return {placement::keep, keep_reason::evaluation};
        }
    }
    if (where == placement::recompute) {
        return r.can_recompute ? decision{placement::recompute, keep_reason::none}
                               : decision{placement::keep, keep_reason::not_recomputable};
    }
    if (where == placement::keep) {
        return {placement::keep, keep_reason::policy};
    }
    if (integrated_) {
        return {placement::keep, keep_reason::integrated};
    }
    return {placement::offload, keep_reason::none,
            r.wish == placement::by_policy && training() && !r.staged && decided_[a.name] == placement::automatic};
}

// Without a plan it is offloaded.
runtime::decision runtime::planned_decision(const activation &a, bool can_recompute) const {
    if (planned_.empty() || a.entry == k_no_index || planned_[a.entry] == tensor_placement::offload) {
        return {placement::offload, keep_reason::none, true};
    }
    if (planned_[a.entry] == tensor_placement::recompute && can_recompute) {
        return {placement::recompute, keep_reason::none, true};
    }
    return {placement::keep, keep_reason::plan, true};
}

void runtime::keep(activation &a, keep_reason reason) {
    a.state = activation_state::kept;
    a.reason = reason;
    if (!a.staged) {
        *kept_counter(reason) += a.size_bytes;
        a.counted_kept = true;
    }
}

uint64_t *runtime::kept_counter(keep_reason reason) noexcept {
    switch (reason) {
        case keep_reason::host_cap:
        case keep_reason::pinning:
        case keep_reason::copy_error:
        case keep_reason::capture:
            return &kept_failure_bytes_;
        case keep_reason::larger_than_slot:
            return &kept_size_bytes_;
        default:
            return &kept_policy_bytes_;
    }
}

// The caller can compute it again: nothing is copied, and its memory may be reused behind its producers.
void runtime::give_up_uncopied(activation &a) {
    a.state = activation_state::recompute;
    if (status s = lines_.wait(a.home, a.produced); !s.ok()) {
        strand(a, std::move(s));
        return;
    }
    run_deleter(a);
}

// A later save inside a range that is already copied, of the same unchanged storage, needs no copy of its own.
bool runtime::share(const offload_request &r, index i) {
    if (r.storage_id == 0 || r.staged) {
        return false;
    }
    const auto *first = static_cast<const std::byte *>(r.data);
    const index p = storages_.find(r.storage_id, r.storage_version, [&](index candidate) {
        const activation &c = activations_[candidate];
        // What a graph copies at each launch is not what was copied once.
        return c.has_block && !c.staged && c.graph == activations_[i].graph && first >= c.data &&
               first + r.size_bytes <= c.data + c.size_bytes;
    });
    if (p == k_no_index) {
        return false;
    }
    activation &parent = activations_[p];
    activation &a = activations_[i];
    a.state = activation_state::shared;
    a.parent = p;
    a.view_offset_bytes = static_cast<uint64_t>(first - parent.data);
    a.next_view = parent.first_view;
    parent.first_view = i;
    ++parent.view_count;
    ++by_name_[a.name].shared;
    if (!parent.source_held) {
        // The copy stands for these bytes too. The same storage and version: what this home stream may
        // overwrite next is what that copy reads.
        give_up_view(a, parent);
    }
    return true;
}

uint64_t runtime::slot_limit_bytes() const noexcept {
    if (options_.lent_allocator) {
        return options_.staging_bytes == 0 ? ~uint64_t{0} : options_.staging_bytes;
    }
    return staging_->block_taken() ? staging_->held_bytes() : staging_->cap_bytes();
}

// False: it is kept, and the outcome says why.
bool runtime::start_copy(index i, offload_outcome &outcome) {
    activation &a = activations_[i];
    if (a.by_thread) {
        by_name_[a.name].offloaded_bytes += a.size_bytes;
        a.state = activation_state::offloaded;
        note_storage_given_up(i);
        return true;
    }
    const uint64_t footprint = staging::slot_footprint_bytes(a.size_bytes, a.data);
    const bool above_given = options_.max_activation_bytes != 0 && a.size_bytes > options_.max_activation_bytes;
    if (!a.staged && (footprint > slot_limit_bytes() || above_given)) {
        outcome.reason = keep_reason::larger_than_slot;
        outcome.wanted_bytes = footprint;
        outcome.held_bytes = staging_->used_bytes();
        outcome.cap_bytes = above_given ? options_.max_activation_bytes : slot_limit_bytes();
        return false;
    }
    const std::optional<pinned_arena::block_id> block = allocate_block(a.size_bytes);
    if (!block.has_value()) {
        const pinned_arena::refusal &why = arena_->last_refusal();
        outcome.reason = why.kind == pinned_arena::refusal_kind::pinning  ? keep_reason::pinning
                         : why.kind == pinned_arena::refusal_kind::frozen ? keep_reason::capture
                                                                          : keep_reason::host_cap;
        outcome.wanted_bytes = why.wanted_bytes;
        outcome.held_bytes = why.held_bytes;
        outcome.cap_bytes = why.cap_bytes;
        return false;
    }
    a.block = *block;
    a.has_block = true;
    status copied = verifier_ == nullptr ? status() : sum_source(a);
    if (copied.ok()) {
        copied = links_wanted() ? hold_copy(i) : copy_out(i);
    }
    if (!copied.ok()) {
        fail_copy(a, copied);
        outcome.reason = keep_reason::copy_error;
        outcome.wanted_bytes = a.size_bytes;
        return false;
    }
    by_name_[a.name].offloaded_bytes += a.size_bytes;
    a.state = activation_state::offloading;
    if (a.staged) {
        if (!a.copy_held) {
            staged_copy_issued(a);
        }
        return true;
    }
    pending_.push_back(i);
    source_bytes_ += a.size_bytes;
    return true;
}

// Its source is a slot of ours, which is free for the next copy behind this one without any stream waiting.
void runtime::staged_copy_issued(activation &a) {
    a.state = activation_state::offloaded;
    run_deleter(a);
}

// Verify mode, in the offload call: what the caller says the bytes are. A thread is not ordered behind the streams that
// produce: the sum is then taken on the lane, which is.
status runtime::sum_source(activation &a) {
    result<verifier::record_id> record = verifier_->open(describe(a));
    if (!record.ok()) {
        return record.why();
    }
    a.verify = record.value();
    if (!sums_at_home(a)) {
        return {};
    }
    ticket at_home;
    EBB_TRY(lines_.wait(a.home, a.produced));
    EBB_TRY(verifier_->sum_source(a.verify, a.home, a.data, a.size_bytes));
    EBB_TRY(lines_.mark(a.home, at_home));
    verifier_->summed_at(a.verify, at_home);
    return {};
}

void runtime::fail_copy(activation &a, const status &why) {
    remember_failure({why.code(), fmt::format("offload of '{}': {}", describe(a), why.text())});
    abandon_block(a);
}

// On the lane: behind the producers (invariant: a copy never reads before what writes it) and behind the last
// copies that used the block's memory (waits_).
status runtime::copy_out(index i) {
    activation &a = activations_[i];
    const profile_range profiled_here = profiled("offload", a);
    lanes::transfer t = lanes_now().begin(copy_direction::d2h);
    EBB_TRY(t.wait(a.produced));
    if (verifier_ != nullptr && !sums_at_home(a)) {
        EBB_TRY(verifier_->sum_source(a.verify, t.stream(), a.data, a.size_bytes));
    }
    for (const ticket w : waits_) {
        EBB_TRY(t.wait(w));
    }
    const lane_sample sample = sample_begin(t.stream(), sample_kind::d2h, a);
    const std::byte *from = a.data;
    status copied;
    arena_->for_each_extent(a.block, [&](const pinned_arena::extent &e) {
        if (copied.ok()) {
            copied = t.copy(e.data, from, e.size_bytes);
        }
        from += e.size_bytes;
    });
    if (copied.ok()) {
        copied = t.flush();
    }
    sample_end(sample);
    EBB_TRY(std::move(copied));
    if (verifier_ != nullptr) {
        EBB_TRY(verify_copy(a, t));
    }
    EBB_TRY(t.finish(a.d2h));
    EBB_TRY(lines_.add(a.copies, a.d2h));
    if (verifier_ != nullptr) {
        if (!sums_at_home(a)) {
            verifier_->summed_at(a.verify, a.d2h);
        }
        verifier_->check_copy(a.verify, a.d2h);
        if (a.staged) {
            return lines_.add(a.produced, verifier_->at_home(a.verify));  // the slot's next copy waits for the sum, too
        }
    }
    return {};
}

status runtime::verify_copy(const activation &a, const lanes::transfer &t) {
    EBB_TRY(verifier_->sum_source_again(a.verify, t.stream(), a.data, a.size_bytes));
    status summed;
    arena_->for_each_extent(a.block, [&](const pinned_arena::extent &e) {
        if (summed.ok()) {
            summed = verifier_->sum_block(a.verify, t.stream(), e.data, e.size_bytes);
        }
    });
    return summed;
}

// A copy failed half-way. What was enqueued still reads the source and writes the block: both wait for the
// lane's last point; if even that cannot be had, the block is never used again, and the source goes back at close.
void runtime::abandon_block(activation &a) {
    a.has_block = false;
    if (a.verify != k_no_index) {
        verifier_->abandon(a.verify);
        a.verify = k_no_index;
    }
    ticket_set behind;
    a.source_lost = !after_failed_copy(copy_direction::d2h, behind).ok();
    for (const ticket t : behind) {
        a.source_lost = a.source_lost || !lines_.add(a.readers, t).ok();
    }
    if (!a.source_lost) {
        free_block(a.block, behind);
    } else if (capturing()) {
        block_holds_.retire(graphs_.handle(capture_), a.block);  // and free when its graph is over
        free_block(a.block, {});
    }
}

// What was enqueued on any lane of that direction, and what the copy should have waited for: its memory may still be in
// use behind those (waits_), since not all of the waits may stand.
status runtime::after_failed_copy(copy_direction direction, ticket_set &behind) {
    for (uint32_t lane = 0; lane < options_.lanes; ++lane) {
        ticket point;
        EBB_TRY(lanes_now().begin(direction).finish(point));  // in turn: each lane once
        EBB_TRY(lines_.add(behind, point));
    }
    for (const ticket w : waits_) {
        EBB_TRY(lines_.add(behind, w));
    }
    return {};
}

// For one that is larger than all of staging, which was taken for what there was then: otherwise it could not be
// offloaded and, being of this form, not be kept either. Blocks until copies are over.
bool runtime::grow_staging(uint64_t footprint_bytes) {
    const uint64_t before = staging_->held_bytes();
    if (options_.staging_bytes != 0 || !staging_->block_taken() || footprint_bytes <= before || any_open_capture()) {
        return false;
    }
    if (!retake_staging(2 * footprint_bytes).ok()) {  // so much, that one can come while one leaves
        remember(retake_staging(before));
    }
    return staging_->held_bytes() >= footprint_bytes;
}

// Staged form: the bytes go to a slot on the producer's stream, so that the caller's memory is free behind it.
status runtime::stage(index i, const offload_request &r) {
    activation &a = activations_[i];
    if (a.size_bytes == 0) {
        return {};
    }
    a.source_held = false;  // the caller's memory is not what it lives in
    staged_seen_ = true;
    bool room = false;
    EBB_TRY(make_slot(a, room, true));
    if (!room && grow_staging(staging::slot_footprint_bytes(a.size_bytes, a.data))) {
        EBB_TRY(make_slot(a, room, true));
    }
    if (!room) {
        return no_slot(a);
    }
    const stream_id stream = r.producers[0];
    status copied;
    for (const ticket w : waits_) {
        if (copied.ok()) {
            copied = lines_.wait(stream, w);
        }
    }
    if (copied.ok()) {
        copied = lines_.wait(stream, a.produced);
    }
    if (copied.ok()) {
        copied = device_.copy(stream, copy_direction::d2d, staging_->data(a.slot), r.data, a.size_bytes);
    }
    ticket point;
    status staged = copied.ok() ? lines_.mark(stream, point) : copied;
    if (!staged.ok()) {
        // A slot that the stream will still write is never used again.
        ticket_set behind;
        status kept = copied.ok() ? staged : status();
        for (const ticket w : waits_) {
            if (kept.ok()) {
                kept = lines_.add(behind, w);
            }
        }
        if (kept.ok()) {
            free_slot(a.slot, a.home, behind);
        } else {
            strand_slot(a.slot, a.home);
        }
        a.has_slot = false;
        return staged;
    }
    a.data = staging_->data(a.slot);
    a.source_slot = a.slot;
    a.staged = true;
    a.source_held = true;
    a.has_slot = false;
    a.produced.clear();
    return lines_.add(a.produced, point);
}

}  // namespace ebb
