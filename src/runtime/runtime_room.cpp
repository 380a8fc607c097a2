// The give-up rule and the device budget.

#include <algorithm>

#include "runtime/runtime.hpp"

namespace ebb {

// Given, or learned from the first recorded step; until then twice the largest activation, beyond staging.
uint64_t runtime::budget_bytes() const noexcept {
    if (options_.device_budget_bytes != 0) {
        return options_.device_budget_bytes;
    }
    return learned_budget_bytes_ != 0 ? learned_budget_bytes_ : 2 * largest_seen_bytes_ + staging_->held_bytes();
}

uint64_t runtime::next_produced_bytes() const noexcept {
    if (!following()) {
        return largest_seen_bytes_;  // whatever comes next, as far as anyone can tell
    }
    // While claims or activations are still to end before it, the call that ends the last of them makes its room.
    if (position_ >= record_.events().size() || record_.events()[position_].use ||
        ends_seen_ < record_.ends_before(position_)) {
        return 0;
    }
    return record_.entries()[record_.events()[position_].entry].size_bytes;
}

uint64_t runtime::source_cap_bytes() const noexcept {
    return options_.source_bytes == k_none_bytes  ? 0
           : options_.source_bytes == k_automatic ? ~uint64_t{0}
                                                  : options_.source_bytes;
}

// Sources are given up oldest first until the next activation fits: the wait must stand on the home stream before
// the kernel that produces it, and this is the last call before that kernel.
void runtime::make_room() {
    const uint64_t budget = budget_bytes();
    uint64_t held = held_bytes();
    if (!pending_.empty()) {
        const uint64_t cap_bytes = source_cap_bytes();
        const uint64_t next_bytes = next_produced_bytes();
        while ((held + next_bytes > budget || source_bytes_ > cap_bytes) && give_up_oldest()) {
            held = held_bytes();
        }
        counters_.source_peak_bytes = std::max(counters_.source_peak_bytes, source_bytes_);
    }
    if (held > counters_.device_peak_bytes || held > budget || record_.empty()) {
        note_budget(held, budget);
    }
}

bool runtime::give_up_oldest() {
    const index oldest = oldest_pending();
    if (oldest == k_no_index) {
        return false;
    }
    give_up(oldest);
    return true;
}

uint32_t runtime::oldest_of_this_context() const noexcept {
    index i = pending_.front();
    while (i != k_no_index && !of_this_context(activations_[i])) {
        i = activations_[i].queue_next;
    }
    return i;
}

void runtime::give_up(index i) {
    activation &a = activations_[i];
    EBB_CHECK(a.state == activation_state::offloading);
    if (a.copy_held) {
        issue_held_to(i);
        if (a.state != activation_state::offloading) {
            return;  // the device refused: it is kept
        }
    }
    pending_.remove(i);
    source_bytes_ -= a.size_bytes;
    // The home stream is where the memory will be reused: whatever it runs next may overwrite the source, so it
    // waits for the copy, and for whoever read the source itself.
    a.home_late = !home_can_wait(a);
    status waited;
    if (!a.home_late) {
        const profile_range profiled_here = profiled("give-up wait", a);
        const lane_sample sample = sample_begin(a.home, sample_kind::exposed_d2h, a);
        waited = lines_.wait(a.home, a.d2h);
        if (waited.ok()) {
            waited = lines_.wait(a.home, a.readers);
        }
        sample_end(sample);
    }
    if (!waited.ok()) {
        remember_failure(naming("give-up of the source", a.name, std::move(waited)));
        keep(a, keep_reason::copy_error);
        return;
    }
    a.state = activation_state::offloaded;
    run_deleter(a);
    look_again_from(a);  // the window may have passed it as one that would be forwarded
    for (index v = a.first_view; v != k_no_index; v = activations_[v].next_view) {
        activation &view = activations_[v];
        if (view.source_held) {
            give_up_view(view, a);
        }
        look_again_from(view);
    }
    note_storage_given_up(i);
}

void runtime::give_up_view(activation &view, const activation &parent) {
    view.home_late = !home_can_wait(view) || !can_wait(view.home, parent.readers) || !can_wait(view.home, parent.d2h);
    if (view.home_late) {
        run_deleter(view);
        return;
    }
    status waited = lines_.wait(view.home, view.produced);
    if (waited.ok()) {
        waited = lines_.wait(view.home, parent.d2h);
    }
    if (waited.ok()) {
        waited = lines_.wait(view.home, parent.readers);
    }
    if (!waited.ok()) {
        strand(view, std::move(waited));
        return;
    }
    run_deleter(view);
}

// The home stream was ordered before (or, for the calling thread, the deleter waits by itself).
void runtime::run_deleter(activation &a) {
    a.source_held = false;
    if (a.staged) {
        ticket_set behind = a.readers;
        remember(lines_.add(behind, a.d2h));
        for (const ticket t : a.produced) {
            remember(lines_.add(behind, t));
        }
        free_slot(a.source_slot, a.home, behind);
        a.readers.clear();
        return;
    }
    if (a.deleter == nullptr) {
        return;
    }
    if (a.home != k_calling_thread && !a.home_late) {
        due_call &call = due_.emplace_back();
        call.deleter = a.deleter;
        call.context = a.deleter_context;
        return;
    }
    const activation &body = a.parent == k_no_index ? a : activations_[a.parent];
    thread_source s{body.readers, {a.deleter, a.deleter_context, nullptr, 0, {}}, a.name};
    status ordered = lines_.add(s.until, body.d2h);
    for (const ticket t : a.produced) {
        if (ordered.ok()) {
            ordered = lines_.add(s.until, t);
        }
    }
    if (!ordered.ok()) {
        remember_failure(std::move(ordered));
        stranded_.push_back(s);  // there is a point that nobody could wait for
        return;
    }
    thread_sources_.push_back(s);
}

// A slot that may still be written and is never used again: of a lent allocator, its memory goes back at close. What is
// part of a capture is over with its graph.
void runtime::strand_slot(staging::slot_id slot, stream_id home) {
    if (capturing()) {
        slot_holds_.retire(graphs_.handle(capture_), slot);
        static_cast<void>(slot_holds_.put_aside(slot, {}, home));
        return;
    }
    if (staging_->is_adopted(slot)) {
        const staging::handed_back memory = staging_->free(slot, {});
        stranded_.push_back({{}, {nullptr, nullptr, memory.memory, memory.footprint_bytes, home}});
    }
}

// Adopted memory goes back to the lent allocator on the home stream, behind all readers; when the home is the
// calling thread, once they are done.
void runtime::give_back_memory(const staging::handed_back &memory, stream_id home, const ticket_set &behind) {
    if (memory.memory == nullptr) {
        return;
    }
    const due_call call{nullptr, nullptr, memory.memory, memory.footprint_bytes, home};
    if (home == k_calling_thread || !can_wait(home, behind)) {
        thread_sources_.push_back({behind, call, name_table::k_root});
        return;
    }
    if (status s = lines_.wait(home, behind); !s.ok()) {
        remember_failure(about("giving lent staging memory back", s));
        stranded_.push_back({{}, call});
        return;
    }
    due_.push_back(call);
}

// Bytes count as given up when the storage may really go: when no other live activation of it holds a source.
void runtime::note_storage_given_up(index i) {
    const auto count = [this](activation &a) {
        const bool gone = a.state == activation_state::offloaded || a.state == activation_state::resident;
        if (!a.counted_given_up && gone) {
            a.counted_given_up = true;
            counters_.given_up_bytes += a.size_bytes;
            by_name_[a.name].given_up_bytes += a.size_bytes;
        }
    };
    activation &a = activations_[i];
    if (a.storage_id == 0) {
        count(a);
        return;
    }
    const index holder = storages_.find(a.storage_id, a.storage_version,
                                        [this](index other) { return activations_[other].source_held; });
    if (holder == k_no_index) {
        storages_.find(a.storage_id, a.storage_version, [&](index other) {
            count(activations_[other]);
            return false;
        });
    }
}

// The budget is a target. What passes it is counted by cause: the largest excess of each.
void runtime::note_budget(uint64_t held, uint64_t budget) {
    counters_.device_peak_bytes = std::max(counters_.device_peak_bytes, held);
    if (training() && record_.empty() && held > record_peak_bytes_) {
        record_peak_bytes_ = held;
        if (options_.device_budget_bytes == 0) {
            free_at_peak_bytes_ = device_.memory().free_bytes;
            peak_is_new_ = true;
        }
    }
    if (held <= budget || !budget_known()) {
        return;
    }
    uint64_t excess = held - budget;
    const auto charge = [&excess](uint64_t &counter, uint64_t cause_bytes) {
        const uint64_t part = std::min(excess, cause_bytes);
        counter = std::max(counter, part);
        excess -= part;
    };
    charge(counters_.over_budget_failure_bytes, kept_failure_bytes_);
    charge(counters_.over_budget_size_bytes, kept_size_bytes_);
    charge(counters_.over_budget_policy_bytes, kept_policy_bytes_);
    charge(counters_.over_budget_caller_bytes, excess);
}

runtime::lane_sample runtime::begin_sample(stream_id stream, sample_kind kind, name_table::node name,
                                           uint64_t size_bytes) {
    if (stream == k_calling_thread || capturing()) {
        return {};
    }
    time_samples::sample what;
    what.kind = kind;
    what.name = name;
    what.size_bytes = size_bytes;
    what.step = step_number_;
    what.place = timer_->place();
    result<time_samples::sample_id> sample = samples_->begin(stream, what);
    return sample.ok() ? lane_sample{true, sample.value(), name} : lane_sample{};
}

void runtime::end_sample(const lane_sample &sample) {
    remember(naming("timing", sample.name, samples_->end(sample.id)));
}

}  // namespace ebb
