// Release: the end of an activation, and what outlives it.

#include <fmt/format.h>

#include <algorithm>

#include "runtime/runtime.hpp"

namespace ebb {

status runtime::release(uint64_t handle) {
    index i = 0;
    EBB_TRY(find_activation(handle, i));
    activation &a = activations_[i];
    if (a.release_asked) {
        return {code::wrong_state,
                fmt::format("activation '{}' was released before and lives only because others recompute from it",
                            describe(a))};
    }
    capture_ = a.graph == 0 ? k_no_index : open_graph(a.graph);
    if (a.dependents != 0) {
        a.release_asked = true;
        settle();
        return {};
    }
    release_now(i);
    settle();
    return {};
}

// And what it would have been recomputed from, one after the other: chains of those may be long.
void runtime::release_now(index i) {
    release_one(i);
    while (!to_release_.empty()) {
        const index next = to_release_.back();
        to_release_.pop_back();
        release_one(next);
    }
}

void runtime::release_one(index i) {
    activation &a = activations_[i];
    EBB_CHECK(user_live_ > 0);
    --user_live_;
    if (a.traced != k_no_index && a.traced_step == step_number_ && training()) {
        trace_.release(a.traced);
        ++ends_seen_;
    }
    if (a.recomputed) {
        recomputed_bytes_ -= a.size_bytes;
    }
    a.released = true;
    waiting_for_slot_ = waiting_for_slot_ == i ? k_no_index : waiting_for_slot_;
    activations_.invalidate(i);
    end_dependences(a);
    if (a.parent != k_no_index || a.view_count != 0) {
        // Others still read the copy: it is not prefetched for this one any more.
        activation &body = activations_[body_of(i)];
        body.expected_uses -= std::min(body.expected_uses, forget_expected(i));
        counters_.prefetches_dropped += drop_unexpected(body_of(i)) ? 1 : 0;
    }
    if (a.parent != k_no_index) {
        end_view(i);
    } else if (a.view_count == 0) {
        end_body(i);
    }
}

// What it would have been recomputed from may go, if its own release was asked for.
void runtime::end_dependences(activation &a) {
    for (const index from : a.recompute_from) {
        activation &f = activations_[from];
        if (--f.dependents == 0 && f.release_asked) {
            to_release_.push_back(from);
        }
    }
    a.recompute_from.clear();
}

void runtime::end_view(index i) {
    activation &view = activations_[i];
    const index p = view.parent;
    activation &parent = activations_[p];
    if (view.source_held) {
        // The caller's reference to memory that the parent holds too: behind what has read it so far, and behind
        // the copy if that is still to be waited for.
        give_up_view(view, parent);
    }
    index *at = &parent.first_view;
    while (*at != i) {
        at = &activations_[*at].next_view;
    }
    *at = view.next_view;
    --parent.view_count;
    activations_.release(i);
    if (parent.released && parent.view_count == 0) {
        end_body(p);
    }
}

// Called when the caller has ended it and its views are gone; again when the last claim is returned.
void runtime::end_body(index i) {
    activation &a = activations_[i];
    if (a.copy_held) {
        cancel_held(i);
        if (a.staged) {
            a.state = activation_state::kept;
        } else {
            hand_back(i);
        }
    } else if (a.state == activation_state::offloading) {
        give_up(i);
    }
    if (a.has_block) {
        if (!a.block_lost) {
            free_block(a.block, a.copies);
        }
        a.has_block = false;
    }
    if (a.claims != 0) {
        return;  // claims still out keep their slot or source
    }
    if (a.has_slot) {
        unclaimed_remove(i);
        release_slot(a);
    }
    if (a.source_held) {
        end_source(i);
    }
    forget(i);
}

// A kept or forwarded source is freed on its home stream behind its producers and consumers and, if it was
// forwarded, behind its own copy (invariant 2).
void runtime::end_source(index i) {
    activation &a = activations_[i];
    if (a.staged && a.source_lost) {
        strand_slot(a.source_slot, a.home);
        a.source_held = false;
        return;
    }
    if (a.staged) {
        run_deleter(a);  // a slot of ours: the next copy into it waits, no stream does
        return;
    }
    if (a.state == activation_state::forwarded) {
        forwarded_bytes_ -= a.size_bytes;
    } else if (a.counted_kept) {
        *kept_counter(a.reason) -= a.size_bytes;
    }
    status waited = a.source_lost ? status(code::device_error,
                                           fmt::format("the memory of '{}' goes back when the runtime is closed: the "
                                                       "device would not mark the copy that may still read it",
                                                       describe(a)))
                                  : status();
    a.home_late = waited.ok() && !home_can_wait(a);
    if (a.home_late) {
        run_deleter(a);
        note_storage_given_up(i);
        return;
    }
    if (waited.ok()) {
        waited = lines_.wait(a.home, a.produced);
    }
    if (waited.ok()) {
        waited = lines_.wait(a.home, a.readers);
    }
    if (waited.ok() && !a.d2h.empty()) {
        const lane_sample sample = sample_begin(a.home, sample_kind::exposed_d2h, a);
        waited = lines_.wait(a.home, a.d2h);
        sample_end(sample);
    }
    if (!waited.ok()) {
        strand(a, std::move(waited));
        return;
    }
    run_deleter(a);
    note_storage_given_up(i);
}

// The device refused to order the reuse of a source: its deleter runs at close, when everything is idle.
void runtime::strand(activation &a, status why) {
    remember_failure(naming("give-up of the source", a.name, std::move(why)));
    a.source_held = false;
    if (a.deleter != nullptr) {
        stranded_.push_back({{}, {a.deleter, a.deleter_context, nullptr, 0, {}}});
    }
}

void runtime::forget(index i) {
    activation &a = activations_[i];
    if (a.in_storage_index) {
        storages_.remove(i);
        a.in_storage_index = false;
    }
    if (a.verify != k_no_index) {
        verifier_->close(a.verify);
        a.verify = k_no_index;
    }
    activations_.release(i);
}

void runtime::drop_all() {
    for (index c = 0; c < claims_.capacity(); ++c) {
        if (claims_.live(c)) {
            const index b = claims_[c].activation;
            claims_.release(c);
            if (--activations_[b].claims == 0 && activations_[b].has_slot) {
                release_slot(activations_[b]);
            }
            if (activations_[b].claims == 0 && activations_[b].released && activations_[b].view_count == 0) {
                end_body(b);
            }
        }
    }
    for (index i = 0; i < activations_.capacity(); ++i) {
        if (activations_.live(i) && !activations_[i].released) {
            activations_[i].dependents = 0;
            activations_[i].recompute_from.clear();
            release_now(i);
        }
    }
}

status runtime::shut_down() {
    closing_ = true;
    remember(lines_.synchronize_all());
    drop_all_unclaimed();
    drop_all();
    remember(lines_.synchronize_all());
    static_cast<void>(progress());
    // Everything is idle, or the device is lost: in both cases nothing reads or writes the sources any more.
    for (std::vector<thread_source> *left : {&stranded_, &thread_sources_}) {
        for (const thread_source &s : *left) {
            due_.push_back(s.call);
        }
        left->clear();
    }
    discard_supply();
    return take_failure();
}

}  // namespace ebb
