// Reload: claims, slots and the copy back.

#include <fmt/format.h>

#include <algorithm>

#include "runtime/runtime.hpp"
#include "runtime/view_parts.hpp"

namespace ebb {

status runtime::reload(uint64_t handle, stream_id consumer, reload_outcome &outcome) {
    index i = 0;
    EBB_TRY(find_activation(handle, i));
    return naming("reload", activations_[i].name, reload_found(i, consumer, outcome));
}

status runtime::reload_found(index i, stream_id consumer, reload_outcome &outcome) {
    EBB_TRY(check_stream(consumer, "consumer"));
    EBB_TRY(enter_reload(i, consumer));
    time_use(i, consumer);
    if (activations_[body_of(i)].state == activation_state::recompute) {
        ask_to_recompute(i, true);
        return status::recompute();
    }
    EBB_TRY(claim_bytes(i, consumer, outcome));
    match_use(i, true);
    settle();
    return {};
}

// What it is computed from is read now: sources that are still there stay, and nothing is prefetched into the room that
// it needs.
void runtime::ask_to_recompute(index i, bool claimed) {
    match_use(i, claimed);
    recompute_asked_.push_back(activations_.handle(body_of(i)));
    recompute_due_ = true;
    if (following() && position_ != 0) {
        for (uint32_t r = record_.reload_at(position_ - 1); r < record_.reload_at(position_); ++r) {
            const index input = activations_.find(bound_[record_.reloads()[r].entry]);
            if (input != k_no_index && activations_[body_of(input)].state == activation_state::offloading) {
                forward(body_of(input));
            }
        }
    }
    settle();
}

status runtime::claim_bytes(index i, stream_id consumer, reload_outcome &outcome) {
    const index b = body_of(i);
    activation &body = activations_[b];
    std::byte *data = nullptr;
    if (body.copy_held && body.staged) {
        issue_held_to(b);  // what it lives in is not the caller's to be handed back
    }
    if (body.source_held) {
        if (body.state == activation_state::offloading) {
            forward(b);
        }
        // The source itself: the consumer must see what the producers wrote.
        EBB_TRY(lines_.wait(consumer, body.produced));
        if (verifier_ != nullptr && !body.d2h.empty()) {
            // A consumer may overwrite what it was handed: not before the copy under way has read it, whose sums
            // would not agree.
            EBB_TRY(lines_.wait(consumer, body.d2h));
            EBB_TRY(lines_.add(body.arrivals, body.d2h));
        }
        data = body.data;
    } else {
        EBB_TRY(ensure_slot(b, consumer));
        hold_slot(body.slot);
        // The bytes are in the slot behind the copy on the lane: that is the wait that a reload exposes.
        status arrived = lines_.add(body.arrivals, body.h2d);
        if (arrived.ok()) {
            arrived = wait_exposed(consumer, body.h2d, activations_[i]);
        }
        if (!arrived.ok()) {
            if (body.claims == 0) {
                leave_unclaimed(b);  // nobody has it: it can be dropped
            }
            return arrived;
        }
        data = staging_->data(body.slot);
        body.slot_shown = true;
    }
    const index c = claims_.acquire();
    claims_[c].begin(b, consumer);
    ++body.claims;
    outcome.claim = claims_.handle(c);
    outcome.data = data + activations_[i].view_offset_bytes;
    outcome.size_bytes = activations_[i].size_bytes;
    return {};
}

// Backward asks before the source was given up: it is handed back. It counts as kept until release.
void runtime::forward(index b) {
    activation &body = activations_[b];
    if (body.copy_held) {
        cancel_held(b);  // chunks not yet issued are dropped
    }
    hand_back(b);
    ++counters_.forwarded_count;
    ++by_name_[body.name].forwarded;
}

void runtime::hand_back(index b) {
    activation &body = activations_[b];
    pending_.remove(b);
    source_bytes_ -= body.size_bytes;
    forwarded_bytes_ += body.size_bytes;
    body.state = activation_state::forwarded;
}

// Prefetched already, or brought now; unclaimed prefetches are dropped where that makes room.
status runtime::ensure_slot(index b, stream_id consumer) {
    activation &body = activations_[b];
    name_counters &n = by_name_[body.name];
    if (body.has_slot) {
        if (body.claims == 0) {
            unclaimed_remove(b);
            ++counters_.reloads_prefetched;
            ++n.prefetched;
        }
        return {};
    }
    bool room = false;
    EBB_TRY(make_slot(body, room, true));
    if (!room) {
        ++counters_.no_slot_count;
        return no_slot(body);
    }
    if (body.graph != 0 && !capturing()) {
        // Its graph was launched on some stream: the consumer's comes behind that, by the order of launches.
        ticket launched;
        EBB_TRY(lines_.mark(consumer, launched));
        waits_.push_back(launched);
    }
    EBB_TRY(copy_in(body));
    ++counters_.reloads_on_demand;
    ++n.on_demand;
    return {};
}

status runtime::no_slot(const activation &a) const {
    const uint64_t wanted = staging::slot_footprint_bytes(a.size_bytes, a.data);
    // Until the block is taken, slots come from the device, which may have nothing left below the cap.
    const std::string device = options_.lent_allocator || staging_->block_taken()
                                   ? std::string()
                                   : fmt::format(", {} free on the device", device_.memory().free_bytes);
    return {
        code::no_slot,
        fmt::format("no staging room for '{}': {} bytes wanted, {} of {} held by claims{}; return claims first, use "
                    "ebb_reload_into, or raise staging_bytes",
                    describe(a), wanted, staging_->used_bytes(), slot_limit_bytes(), device)};
}

// Leaves in waits_ what the first copy into the slot must wait for: its last readers, on whichever streams.
status runtime::make_slot(activation &a, bool &room, bool may_drop) {
    room = false;
    waits_.clear();
    if (const std::optional<staging::slot_id> slot =
            capturing() ? allocate_captured_slot(a.size_bytes, a.data) : std::nullopt) {
        a.slot = *slot;
        a.has_slot = room = true;
        return {};
    }
    if (options_.lent_allocator) {
        // It was asked for while no lock was held: perhaps for another one, whose home is another stream.
        if (supply_.memory == nullptr || supply_.home != a.home ||
            supply_.footprint_bytes < staging::slot_footprint_bytes(a.size_bytes, a.data)) {
            return {};
        }
        // The allocator's memory may be used behind the home stream's point now.
        ticket allocated;
        EBB_TRY(lines_.mark(supply_.home, allocated));
        waits_.push_back(allocated);  // first: where the heap has nothing left, the slot would have no owner
        a.slot = staging_->adopt(supply_.memory, supply_.footprint_bytes, a.size_bytes, a.data);
        supply_ = {};
        a.has_slot = room = true;
        hold_slot(a.slot);
        return {};
    }
    std::optional<staging::slot_id> slot = allocate_slot(a.size_bytes, a.data);
    while (!slot.has_value() && may_drop && drop_last_unclaimed()) {
        slot = allocate_slot(a.size_bytes, a.data);
    }
    if (slot.has_value()) {
        a.slot = *slot;
        a.has_slot = room = true;
    }
    return {};
}

// On the lane: behind its own offload (invariant 2) and behind the last readers of the slot.
status runtime::copy_in(activation &body) {
    status s = copy_into(body, staging_->data(body.slot), waits_);
    if (!s.ok()) {
        // The slot may still be written by what was enqueued: it is not used again unless a later point is had.
        ticket_set behind;
        if (after_failed_copy(copy_direction::h2d, behind).ok()) {
            keep_block_behind(body, behind);
            body.readers = behind;
            body.h2d = {};
            release_slot(body);
        } else {
            lose_block(body);
            strand_slot(body.slot, body.home);
        }
        body.has_slot = false;
        return {s.code(), fmt::format("reload of '{}': {}", describe(body), s.text())};
    }
    body.state = activation_state::resident;
    body.slot_graph = capturing() ? graphs_.handle(capture_) : 0;
    body.slot_lost = false;
    body.readers.clear();
    body.readers_cover_copy = false;
    return {};
}

status runtime::copy_into(activation &body, std::byte *destination, const std::vector<ticket> &behind) {
    hold_block(body.block);
    lanes::transfer t = lanes_now().begin(copy_direction::h2d);
    EBB_TRY(t.wait(body.d2h));
    for (const ticket w : behind) {
        EBB_TRY(t.wait(w));
    }
    const lane_sample sample = sample_begin(t.stream(), sample_kind::h2d, body);
    status copied;
    std::byte *to = destination;
    arena_->for_each_extent(body.block, [&](const pinned_arena::extent &e) {
        if (copied.ok()) {
            copied = t.copy(to, e.data, e.size_bytes);
        }
        to += e.size_bytes;
    });
    if (copied.ok()) {
        copied = t.flush();
    }
    sample_end(sample);
    EBB_TRY(std::move(copied));
    uint32_t sum = 0;
    if (body.verify != k_no_index) {
        EBB_TRY(verifier_->sum_reload(t.stream(), destination, body.size_bytes, sum));
    }
    EBB_TRY(t.finish(body.h2d));
    if (body.verify != k_no_index) {
        verifier_->check_reload(body.verify, sum, body.h2d);
    }
    by_name_[body.name].reloaded_bytes += body.size_bytes;
    if (body.copies.size() == 1 && *body.copies.begin() == body.d2h) {
        body.copies.clear();  // this copy waited for that one
    }
    return lines_.add(body.copies, body.h2d);
}

// The next copy into the slot waits for every reader of this one, and for the copy itself.
void runtime::release_slot(activation &body) {
    if (!body.readers_cover_copy) {
        remember(lines_.add(body.readers, body.h2d));
    }
    free_slot(body.slot, body.home, body.readers);
    body.has_slot = body.slot_shown = false;
    body.readers.clear();
    if (body.state == activation_state::resident) {
        body.state = activation_state::offloaded;
    }
}

void runtime::unclaimed_add(index b, bool front) {
    unclaimed_bytes_ += activations_[b].size_bytes;
    if (front) {
        unclaimed_.push_front(b);
    } else {
        unclaimed_.push_back(b);
    }
    activations_[b].unclaimed = true;
}

void runtime::unclaimed_remove(index b) {
    activation &body = activations_[b];
    if (body.unclaimed) {
        unclaimed_.remove(b);
        unclaimed_bytes_ -= body.size_bytes;
        body.unclaimed = false;
    }
}

// For the next use, where the slot holds what that one is to read: bytes that a graph offloads are others at each
// launch.
void runtime::leave_unclaimed(index b) {
    if (of_one_launch(activations_[b]) || activations_[b].slot_lost) {
        release_slot(activations_[b]);
    } else {
        unclaimed_add(b, true);
    }
}

// The one that is needed last.
bool runtime::drop_last_unclaimed() {
    if (unclaimed_.empty()) {
        return false;
    }
    drop_prefetched(unclaimed_.back());
    return true;
}

// Its block still holds the bytes, so nothing is lost (invariant 7).
void runtime::drop_prefetched(index b) {
    activation &body = activations_[b];
    unclaimed_remove(b);
    body.expected_uses = 0;
    static_cast<void>(forget_expected(b));
    for (index v = body.first_view; v != k_no_index; v = activations_[v].next_view) {
        static_cast<void>(forget_expected(v));
    }
    release_slot(body);
    ++counters_.prefetches_dropped;
}

// A slot that was prefetched for uses none of which will come any more. False: it is none.
bool runtime::drop_unexpected(index b) {
    activation &body = activations_[b];
    if (!body.unclaimed || body.expected_uses != 0) {
        return false;
    }
    unclaimed_remove(b);
    release_slot(body);
    return true;
}

void runtime::drop_all_unclaimed() {
    while (drop_last_unclaimed()) {
    }
}

bool runtime::drop_unclaimed() {
    const bool any = !unclaimed_.empty();
    drop_all_unclaimed();
    return any;
}

// ---------------------------------------------------------------------------------------- into own memory --

status runtime::reload_into(uint64_t handle, void *data, uint64_t size_bytes, stream_id consumer) {
    index i = 0;
    EBB_TRY(find_activation(handle, i));
    return naming("reload", activations_[i].name,
                  reload_found_into(i, static_cast<std::byte *>(data), size_bytes, consumer));
}

status runtime::reload_found_into(index i, std::byte *data, uint64_t size_bytes, stream_id consumer) {
    EBB_TRY(check_stream(consumer, "consumer"));
    const activation &view = activations_[i];
    if (size_bytes != view.size_bytes) {
        return {code::invalid_argument, fmt::format("size_bytes is {}, but activation '{}' has {} bytes", size_bytes,
                                                    describe(view), view.size_bytes)};
    }
    EBB_TRY(enter_reload(i, consumer));
    time_use(i, consumer);
    if (activations_[body_of(i)].state == activation_state::recompute) {
        ask_to_recompute(i, false);
        return status::recompute();
    }
    if (size_bytes != 0) {
        EBB_TRY(copy_to_caller(i, data, consumer));
    }
    match_use(i, false);
    settle();
    return {};
}

status runtime::copy_to_caller(index i, std::byte *data, stream_id consumer) {
    const index b = body_of(i);
    activation &body = activations_[b];
    const activation &view = activations_[i];
    if (body.copy_held && body.staged) {
        issue_held_to(b);
    }
    if (body.by_thread && consumer == k_calling_thread) {
        return reload_by_thread(body, view, data);
    }
    // The destination may be written behind what is on the consumer's stream now.
    ticket free_at;
    EBB_TRY(lines_.mark(consumer, free_at));
    const bool whole = view.view_offset_bytes == 0 && view.size_bytes == body.size_bytes;
    const bool from_block = !body.source_held && (!body.has_slot || body.slot_shown);
    if (from_block && whole) {
        waits_.clear();
        waits_.push_back(free_at);
        ticket slot_point = body.h2d;
        if (status s = copy_into(body, data, waits_); !s.ok()) {
            return after_failed_reload(body, consumer, s);
        }
        const ticket arrival = body.h2d;
        body.h2d = slot_point;  // no slot was filled
        ++counters_.reloads_on_demand;
        ++by_name_[body.name].on_demand;
        return wait_for_callers_copy(body, view, consumer, arrival);
    }
    if (from_block) {
        waits_.clear();
        ticket arrival;
        if (status s = copy_part(body, view, data, free_at, arrival); !s.ok()) {
            return after_failed_reload(body, consumer, s);
        }
        return wait_for_callers_copy(body, view, consumer, arrival);
    }
    return copy_on_device(b, view, data, consumer, free_at);
}

// The copy will write the caller's memory, whether or not anyone can be made to wait for it.
status runtime::wait_for_callers_copy(activation &body, const activation &view, stream_id consumer, ticket arrival) {
    status waited = lines_.add(body.arrivals, arrival);
    if (waited.ok()) {
        waited = wait_exposed(consumer, arrival, view);
    }
    if (waited.ok()) {
        return {};
    }
    return {waited.code(), fmt::format("reload of '{}': {}; its memory may still be written: keep it until the "
                                       "runtime is closed",
                                       describe(view), waited.text())};
}

// What was enqueued may still write the caller's memory: what the consumer runs next comes behind it.
status runtime::after_failed_reload(activation &body, stream_id consumer, const status &why) {
    ticket_set behind;
    status ordered = after_failed_copy(copy_direction::h2d, behind);
    if (ordered.ok()) {
        keep_block_behind(body, behind);
        ordered = lines_.wait(consumer, behind);
    } else {
        lose_block(body);
    }
    const char *advice = ordered.ok() ? "" : "; its memory may still be written: keep it until the runtime is closed";
    return {why.code(), fmt::format("reload of '{}': {}{}", describe(body), why.text(), advice)};
}

// Who may read it cannot be waited for. What is part of a capture is over with its graph.
void runtime::lose_block(activation &body) {
    if (capturing()) {
        block_holds_.retire(graphs_.handle(capture_), body.block);
    } else {
        body.block_lost = true;
    }
}

// A point that cannot be added is a reader that nobody will wait for: the block is not used again.
void runtime::keep_block_behind(activation &body, const ticket_set &readers) {
    for (const ticket t : readers) {
        if (status s = lines_.add(body.copies, t); !s.ok()) {
            remember_failure(std::move(s));
            body.block_lost = true;
        }
    }
}

status runtime::wait_exposed(stream_id consumer, ticket point, const activation &a) {
    const profile_range profiled_here = profiled("reload wait", a);
    const lane_sample sample = sample_begin(consumer, sample_kind::exposed_h2d, a);
    status waited = lines_.wait(consumer, point);
    sample_end(sample);
    return waited;
}

// A view of a copy: the part of each extent that it covers.
status runtime::copy_part(activation &body, const activation &view, std::byte *data, ticket free_at, ticket &arrival) {
    hold_block(body.block);
    lanes::transfer t = lanes_now().begin(copy_direction::h2d);
    EBB_TRY(t.wait(body.d2h));
    EBB_TRY(t.wait(free_at));
    EBB_TRY(for_each_part(
        *arena_, body.block, view, data,
        [&](std::byte *own, std::byte *callers, uint64_t size_bytes) { return t.copy(callers, own, size_bytes); }));
    EBB_TRY(t.flush());
    EBB_TRY(t.finish(arrival));
    EBB_TRY(lines_.add(body.arrivals, arrival));
    ++counters_.reloads_on_demand;
    ++by_name_[view.name].on_demand;
    by_name_[view.name].reloaded_bytes += view.size_bytes;
    return lines_.add(body.copies, arrival);
}

// The bytes are on the device: copied there, on the consumer's stream, or on a lane when the consumer is the thread.
status runtime::copy_on_device(index b, const activation &view, std::byte *data, stream_id consumer, ticket free_at) {
    activation &body = activations_[b];
    const bool from_slot = !body.source_held;
    const std::byte *from = (from_slot ? staging_->data(body.slot) : body.data) + view.view_offset_bytes;
    ticket_set behind;
    if (from_slot) {
        EBB_TRY(lines_.add(behind, body.h2d));
    } else {
        behind = body.produced;
    }
    EBB_TRY(lines_.add(behind, free_at));
    ticket done;
    bool enqueued = false;
    status copied = enqueue_on_device(behind, {data, from, view.size_bytes}, consumer, enqueued, done);
    if (copied.ok()) {
        copied = lines_.add(body.readers, done);
    }
    if (copied.ok()) {
        copied = lines_.add(body.arrivals, done);
    }
    if (!copied.ok() && enqueued) {
        hold_until_close(b, consumer);
        return {copied.code(), fmt::format("reload of '{}': {}; its memory may still be written: keep it until the "
                                           "runtime is closed",
                                           describe(view), copied.text())};
    }
    EBB_TRY(std::move(copied));
    if (from_slot && body.claims == 0) {
        ++counters_.reloads_prefetched;
        ++by_name_[body.name].prefetched;
    }
    return {};
}

status runtime::enqueue_on_device(const ticket_set &behind, const device_copy &copy, stream_id consumer, bool &enqueued,
                                  ticket &done) {
    if (consumer == k_calling_thread) {
        lanes::transfer t = lanes_now().begin(copy_direction::h2d);
        EBB_TRY(t.wait(behind));
        EBB_TRY(device_.copy(t.stream(), copy_direction::d2d, copy.to, copy.from, copy.size_bytes));
        enqueued = true;
        return t.finish(done);
    }
    EBB_TRY(lines_.wait(consumer, behind));
    EBB_TRY(device_.copy(consumer, copy_direction::d2d, copy.to, copy.from, copy.size_bytes));
    enqueued = true;
    return lines_.mark(consumer, done);
}

// A reader whose end nobody can wait for: a claim that nobody returns keeps what it reads until close.
void runtime::hold_until_close(index b, stream_id consumer) {
    activation &body = activations_[b];
    unclaimed_remove(b);
    if (body.state == activation_state::offloading) {
        forward(b);
    }
    const index c = claims_.acquire();
    claims_[c].begin(b, consumer);
    ++body.claims;
}

// ------------------------------------------------------------------------------------------------- claims --

status runtime::use(uint64_t handle, stream_id stream) {
    const index c = claims_.find(handle);
    if (c == k_no_index) {
        return stale("claim", handle);
    }
    return naming("use", activations_[claims_[c].activation].name, use_found(claims_[c], stream));
}

status runtime::use_found(claim &held, stream_id stream) {
    if (stream == k_calling_thread) {
        return {code::invalid_argument, "stream is the calling thread: use ebb_wait before reading on it"};
    }
    EBB_TRY(check_stream(stream, "stream"));
    for (uint32_t k = 0; k < held.other_count; ++k) {
        if (held.others[k] == stream) {
            return {};
        }
    }
    if (held.other_count == claim::k_max_streams) {
        return {code::unsupported,
                fmt::format("a claim takes up to {} further streams; reload again for more", claim::k_max_streams)};
    }
    const activation &body = activations_[held.activation];
    EBB_TRY(enter(stream));
    EBB_TRY(check_reload(body));
    if (body.has_slot) {
        hold_slot(body.slot);
    }
    EBB_TRY(lines_.wait(stream, body.source_held ? body.produced : ticket_set{}));
    if (body.has_slot) {
        EBB_TRY(lines_.wait(stream, body.h2d));
    }
    held.others[held.other_count++] = stream;
    return {};
}

status runtime::give_back(uint64_t handle, stream_id last) {
    const index c = claims_.find(handle);
    if (c == k_no_index) {
        return stale("claim", handle);
    }
    const name_table::node name = activations_[claims_[c].activation].name;
    return naming("return", name, give_back_found(c, last));
}

status runtime::give_back_found(index c, stream_id last) {
    EBB_TRY(check_stream_to_mark(last, "last"));
    EBB_TRY(enter(last));
    EBB_TRY(end_claim(c, last));
    settle();
    return {};
}

status runtime::give_back_on_consumer(uint64_t handle) {
    const index c = claims_.find(handle);
    return c == k_no_index ? stale("claim", handle) : give_back(handle, claims_[c].consumer);
}

// The points of the last uses are taken now: the caller has enqueued them.
status runtime::end_claim(index c, stream_id last) {
    const claim &held = claims_[c];
    const index b = held.activation;
    activation &body = activations_[held.activation];
    if (body.has_slot) {
        hold_slot(body.slot);
    }
    ticket point;
    if (status marked = lines_.mark(last, point); !marked.ok()) {
        return about("last", marked);  // the claim stays: its memory cannot be reused safely
    }
    EBB_TRY(lines_.add(body.readers, point));
    for (uint32_t k = 0; k < held.other_count; ++k) {
        EBB_TRY(lines_.mark(held.others[k], point));
        EBB_TRY(lines_.add(body.readers, point));
    }
    // The consumer's stream waited for the copy when it got the claim: its later points come behind both.
    body.readers_cover_copy |= last == held.consumer && last != k_calling_thread;
    claims_.release(c);
    --body.claims;
    if (body.claims != 0) {
        return {};
    }
    if (training() && !recomputing_ && body.traced != k_no_index && body.traced_step == step_number_ &&
        !body.released) {
        trace_.done(body.traced);
        // As the record counts them: the release that comes next is the end.
        const bool released_next = body.entry != k_no_index && body.released_at == position_;
        ends_seen_ += released_next ? 0 : 1;
    }
    if (body.has_slot) {
        // Another use of these bytes is expected within the window: leaving them is that use's prefetch.
        if (body.expected_uses != 0 && (!body.released || body.view_count != 0)) {
            leave_unclaimed(b);
        } else {
            release_slot(body);
        }
    }
    if (body.released && body.view_count == 0) {
        end_body(b);
    }
    return {};
}

}  // namespace ebb
