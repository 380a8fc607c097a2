// Collectives: while one runs, copies that nobody waits for would only slow it. Offload copies asked for between its
// begin and its end are held, and go to their lanes in the call that ends it, behind its end on its stream;
// prefetches are not issued meanwhile. What somebody waits for goes at once: a reload on demand, and the copy of a
// source that is given up.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/runtime.hpp"

namespace ebb {

status runtime::collective_begin(stream_id stream, uint64_t size_bytes) {
    EBB_TRY(check_stream(stream, "stream"));
    EBB_TRY(enter(stream));
    for (const collective &c : collectives_) {
        if (c.stream == stream) {
            return {code::wrong_state,
                    "ebb_collective_begin: the collective before on this stream was not ended; end that one first"};
        }
    }
    collective &begun = collectives_.emplace_back();
    begun.stream = stream;
    begun.captured = capturing();
    if (training() && step_number_ != 0) {
        begun.traced = trace_.begin_collective(size_bytes);
        begun.traced_step = step_number_;
        begun.sample = sample_collective(stream, begun.traced);
    }
    return {};
}

status runtime::collective_end(stream_id stream) {
    const auto ended = std::find_if(collectives_.begin(), collectives_.end(),
                                    [stream](const collective &c) { return c.stream == stream; });
    if (ended == collectives_.end()) {
        return {code::wrong_state, "ebb_collective_end without ebb_collective_begin on this stream"};
    }
    const status entered = enter(stream);
    if (ended->traced_step == step_number_ && training()) {
        trace_.end_collective(ended->traced);
    }
    if (entered.ok() && !capturing()) {
        sample_end(ended->sample);
    } else if (ended->sample.taken) {
        samples_->cancel(ended->sample.id);
    }
    collectives_.erase(ended);
    EBB_TRY(status(entered));
    // Nothing of a capture is held: where its copies go is fixed then. What was held outside cannot come behind an end
    // in a capture. A point that cannot be had orders nothing, but the copies go all the same: they are only early.
    const status behind = capturing() ? status() : come_behind(stream);
    if (!links_taken()) {
        prefetch_held_ = false;
        if (!held_copies_.empty()) {
            issue_held_to(held_copies_.back());
        }
    }
    settle();
    return behind.ok() ? status() : about("stream", behind);
}

// From what its stream had done before until it is over itself.
runtime::lane_sample runtime::sample_collective(stream_id stream, uint32_t number) {
    if (!timer_->timing() || stream == k_calling_thread || capturing()) {
        return {};
    }
    time_samples::sample what;
    what.kind = sample_kind::collective;
    what.step = step_number_;
    what.place = number;
    result<time_samples::sample_id> begun = samples_->begin(stream, what);
    return begun.ok() ? lane_sample{true, begun.value(), name_table::k_root} : lane_sample{};
}

bool runtime::any_eager_collective() const noexcept {
    return std::any_of(collectives_.begin(), collectives_.end(), [](const collective &c) { return !c.captured; });
}

// What was held starts behind the end; a direction in which nothing was held is not made to wait.
status runtime::come_behind(stream_id stream) {
    ticket end;
    EBB_TRY(lines_.mark(stream, end));
    if (!held_copies_.empty()) {
        EBB_TRY(lanes_->wait_all(copy_direction::d2h, end));
    }
    return prefetch_held_ ? lanes_->wait_all(copy_direction::h2d, end) : status();
}

// What the block's memory waits for is kept with the block meanwhile.
status runtime::hold_copy(index i) {
    activation &a = activations_[i];
    for (const ticket w : waits_) {
        EBB_TRY(lines_.add(a.copies, w));
    }
    held_copies_.push_back(i);
    a.copy_held = true;
    return {};
}

// Those that were asked for before go first: a lane's order is that of the calls. None of them is part of a capture,
// whatever this call is part of.
void runtime::issue_held_to(index last) {
    const index capture = std::exchange(capture_, k_no_index);
    const auto end = std::find(held_copies_.begin(), held_copies_.end(), last) + 1;
    for (auto at = held_copies_.begin(); at != end; ++at) {
        issue_held(*at);
    }
    held_copies_.erase(held_copies_.begin(), end);
    capture_ = capture;
}

void runtime::issue_held(index i) {
    activation &a = activations_[i];
    a.copy_held = false;
    waits_.assign(a.copies.begin(), a.copies.end());
    a.copies.clear();
    if (status s = copy_out(i); !s.ok()) {
        fail_copy(a, s);
        by_name_[a.name].offloaded_bytes -= a.size_bytes;
        if (!a.staged) {
            pending_.remove(i);
            source_bytes_ -= a.size_bytes;
        }
        keep(a, keep_reason::copy_error);
    } else if (a.staged) {
        staged_copy_issued(a);
    }
}

// It is not wanted any more: handed back, or released.
void runtime::cancel_held(index i) {
    activation &a = activations_[i];
    held_copies_.erase(std::find(held_copies_.begin(), held_copies_.end(), i));
    a.copy_held = false;
    by_name_[a.name].offloaded_bytes -= a.size_bytes;
    free_block(a.block, a.copies);
    a.copies.clear();
    a.has_block = false;
    if (a.verify != k_no_index) {
        verifier_->check_nothing(a.verify);
    }
}

}  // namespace ebb
