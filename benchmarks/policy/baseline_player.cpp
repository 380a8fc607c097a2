#include "policy/baseline_player.hpp"

#include <algorithm>

namespace ebb::baselines {

namespace {

constexpr uint64_t k_baseline_alignment = 512;

uint64_t baseline_aligned(uint64_t size_bytes) {
    return (size_bytes + k_baseline_alignment - 1) / k_baseline_alignment * k_baseline_alignment;
}

// Addresses are not memory: each tensor has its own, on both sides.
sim_machine with_addresses(sim_machine machine, const built_step &step) {
    uint64_t all_bytes = k_baseline_alignment;
    for (const step_tensor &t : step.model.tensors) {
        all_bytes += baseline_aligned(t.size_bytes);
    }
    machine.device_bytes = machine.host_bytes = all_bytes + (uint64_t{1} << 20U);
    machine.host_call_ps = 0;
    return machine;
}

}  // namespace

baseline_player::baseline_player(const built_step &step, const sim_machine &machine, uint64_t device_budget_bytes)
    : step_(step),
      outline_(step),
      budget_bytes_(device_budget_bytes),
      host_limit_bytes_(machine.host_bytes),
      machine_(with_addresses(machine, step)),
      ledger_(step.model.fixed_bytes) {}

void baseline_player::must(const status &done) {
    if (failed_.ok()) {
        failed_ = done;
    }
}

void baseline_player::set_up() {
    device_ = std::make_unique<sim_device>(machine_);
    for (stream_id *s : {&compute_, &out_, &in_, &collective_}) {
        *s = must(device_->create_stream(stream_role::compute));
    }
    uint64_t all_bytes = 0;
    for (const step_tensor &t : step_.model.tensors) {
        offset_.push_back(all_bytes);
        all_bytes += baseline_aligned(t.size_bytes);
    }
    memory_ = static_cast<std::byte *>(must(device_->alloc_device(std::max(all_bytes, k_baseline_alignment))));
    host_ = static_cast<std::byte *>(must(device_->map_host(std::max(all_bytes, k_baseline_alignment))));
    live_.resize(step_.model.tensors.size());
    held_bytes_ = step_.model.fixed_bytes;
}

// ------------------------------------------------------------------------------------------------------ the step --

result<baseline_result> baseline_player::play(const rule_maker &make) {
    set_up();
    rule_ = make(*this);
    const event_id start = now();
    for (uint32_t i = 0; i < step_.iterations.size() && failed_.ok(); ++i) {
        rule_->begins(i);
        for (uint32_t e = step_.iterations[i].begin; e < step_.iterations[i].end; ++e) {
            if (const uint32_t t = outline_.allocated_at(e); t != k_no_index) {
                take(step_.model.tensors[t].size_bytes);
            }
            for (const uint32_t t : outline_.recomputed_at(e)) {
                recompute(t);
            }
            play_event(step_.model.events[e]);
        }
        rule_->ends(i);
    }
    compute_moved_ = true;
    const event_id end = now();
    device_->synchronize();
    EBB_TRY(failed_);
    baseline_result r;
    r.step_ns = ns_between(start, end);
    r.device_peak_bytes = must(ledger_.device_peak_bytes(*device_, start));
    r.host_peak_bytes = ledger_.host_peak_bytes();
    r.out_of_memory = r.device_peak_bytes > budget_bytes_ || r.host_peak_bytes > host_limit_bytes_;
    EBB_TRY(failed_);
    return r;
}

void baseline_player::play_event(const step_event &event) {
    switch (event.what) {
        case step_event_kind::work:
            return work(event.time_ns, event.hbm_fraction, compute_, sim_engine::compute);
        case step_event_kind::collective_begin:
        case step_event_kind::hold_begin:  // none of them knows of it
            waits(collective_, now());
            return work(event.time_ns, 0, collective_, sim_engine::collective);
        case step_event_kind::collective_end:
            return compute_waits_for(collective_);
        case step_event_kind::produce:
            return produce(event.tensor);
        case step_event_kind::use:
            return need(event.tensor);
        case step_event_kind::hold_end:
            return;
        case step_event_kind::done:
            return;  // it stays until its release
        case step_event_kind::release:
            return release(event.tensor);
    }
}

void baseline_player::work(double time_ns, double hbm_fraction, stream_id stream, sim_engine engine) {
    sim_kernel kernel;
    kernel.engine = engine;
    kernel.duration_ps = static_cast<sim_time_ps>(time_ns * 1e3 + 0.5);
    kernel.hbm_fraction = hbm_fraction;
    must(device_->launch(stream, kernel));
    compute_moved_ = compute_moved_ || stream == compute_;
}

void baseline_player::produce(uint32_t t) {
    live_[t] = {};
    if (is_recomputed(t)) {
        return give_back(step_.model.tensors[t].size_bytes, now());
    }
    live_[t].here = true;
    if (outline_.is_moved(t)) {
        rule_->produced(t);
    }
}

void baseline_player::need(uint32_t t) {
    if (outline_.is_moved(t)) {
        rule_->needed(t);
    }
}

void baseline_player::recompute(uint32_t t) {
    for (const uint32_t from : step_.model.tensors[t].recompute_from) {
        need(from);
    }
    take(step_.model.tensors[t].size_bytes);
    work(step_.model.tensors[t].recompute_ns, 0, compute_, sim_engine::compute);
    live_[t].here = true;
}

// One that was never given up may still be read by its copy.
void baseline_player::release(uint32_t t) {
    live_tensor &l = live_[t];
    if (l.here) {
        give_back(step_.model.tensors[t].size_bytes, l.copied_out ? l.out_event : now());
    }
    if (l.in_pinned) {
        ledger_.give_back_host(step_.model.tensors[t].size_bytes);
    }
    l = {};
}

// ------------------------------------------------------------------------------------------------------ streams --

event_id baseline_player::point_of(stream_id stream) {
    if (stream == compute_ && !compute_moved_) {
        return compute_point_;
    }
    const event_id made = must(device_->create_event(event_kind::timed));
    must(device_->record_event(made, stream));
    if (stream == compute_) {
        compute_point_ = made;
        compute_moved_ = false;
    }
    return made;
}

void baseline_player::waits(stream_id stream, event_id event) {
    must(device_->wait_event(stream, event));
    compute_moved_ = compute_moved_ || stream == compute_;
}

void baseline_player::compute_waits_for(stream_id stream) {
    waits(compute_, point_of(stream));
}

void baseline_player::copy_out(uint32_t t, stream_id stream) {
    if (stream != compute_) {
        waits(stream, now());
    }
    must(device_->copy(stream, copy_direction::d2h, host_of(t), device_of(t), step_.model.tensors[t].size_bytes));
    compute_moved_ = compute_moved_ || stream == compute_;
    live_[t].copied_out = live_[t].in_pinned = true;
    live_[t].out_event = point_of(stream);
    ledger_.take_host(step_.model.tensors[t].size_bytes);
}

void baseline_player::copy_in(uint32_t t, stream_id stream) {
    live_tensor &l = live_[t];
    if (l.here) {
        return;
    }
    take(step_.model.tensors[t].size_bytes);
    if (stream != compute_) {
        waits(stream, now());
    }
    waits(stream, l.out_event);
    must(device_->copy(stream, copy_direction::h2d, device_of(t), host_of(t), step_.model.tensors[t].size_bytes));
    compute_moved_ = compute_moved_ || stream == compute_;
    l.here = l.arrives = true;
    l.copied_out = false;  // what is here is another block
    l.in_event = point_of(stream);
}

void baseline_player::compute_waits_for_copy_in(uint32_t t) {
    if (std::exchange(live_[t].arrives, false)) {
        waits(compute_, live_[t].in_event);
    }
}

bool baseline_player::is_stored(uint32_t t) {
    must(device_->synchronize_event(now()));
    return live_[t].copied_out && must(device_->event_done(live_[t].out_event));
}

void baseline_player::host_waits_for_copy_out(uint32_t t) {
    must(device_->synchronize_event(live_[t].out_event));
}

double baseline_player::ns_between(event_id from, event_id until) {
    return static_cast<double>(must(device_->elapsed_ns(from, until)));
}

// ------------------------------------------------------------------------------------------------------- memory --

void baseline_player::take(uint64_t size_bytes) {
    while (held_bytes_ + size_bytes > budget_bytes_ && deferred_head_ < deferred_.size()) {
        const deferred_block &oldest = deferred_[deferred_head_++];
        waits(compute_, oldest.freed);
        held_bytes_ -= oldest.size_bytes;
    }
    held_bytes_ += size_bytes;
    ledger_.take(size_bytes, now());
}

void baseline_player::give_back(uint64_t size_bytes, event_id also_behind) {
    held_bytes_ -= size_bytes;
    ledger_.give_back(size_bytes, now(), also_behind);
}

void baseline_player::give_up(uint32_t t) {
    waits(compute_, live_[t].out_event);
    give_back(step_.model.tensors[t].size_bytes, now());
    live_[t].here = false;
}

void baseline_player::give_up_when_stored(uint32_t t) {
    const uint64_t size_bytes = step_.model.tensors[t].size_bytes;
    held_bytes_ -= size_bytes;
    ledger_.give_back(size_bytes, live_[t].out_event, live_[t].out_event);
    live_[t].here = false;
}

void baseline_player::give_up_to_allocator(uint32_t t) {
    const uint64_t size_bytes = step_.model.tensors[t].size_bytes;
    ledger_.give_back(size_bytes, now(), live_[t].out_event);
    deferred_.push_back({size_bytes, live_[t].out_event});
    live_[t].here = false;
}

// ------------------------------------------------------------------------------------------------------- results --

namespace {

// The step when copies cost nothing.
double ns_without_copies(const built_step &step) {
    const step_outline outline(step);
    double now_ns = 0;
    double collective_ns = 0;
    for (uint32_t e = 0; e < step.model.events.size(); ++e) {
        for (const uint32_t t : outline.recomputed_at(e)) {
            now_ns += step.model.tensors[t].recompute_ns;
        }
        const step_event &event = step.model.events[e];
        if (event.what == step_event_kind::work) {
            now_ns += event.time_ns;
        } else if (event.what == step_event_kind::collective_begin) {
            collective_ns = std::max(collective_ns, now_ns) + event.time_ns;
        } else if (event.what == step_event_kind::collective_end) {
            now_ns = std::max(now_ns, collective_ns);
        }
    }
    return now_ns;
}

}  // namespace

result<baseline_result> play_rule(const built_step &step, const sim_machine &machine, uint64_t device_budget_bytes,
                                  const baseline_player::rule_maker &make) {
    result<baseline_result> played = baseline_player(step, machine, device_budget_bytes).play(make);
    if (played.ok()) {
        baseline_result r = played.value();
        r.exposed_ns = std::max(0.0, r.step_ns - ns_without_copies(step));
        return r;
    }
    return played;
}

}  // namespace ebb::baselines
