#include "schedule/evaluator.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.hpp"

namespace ebb {

evaluator::evaluator(const step_model &model) : model_(model) {
    derive_ops();
    const size_t tensors = model.tensors.size();
    size_bytes_.reserve(tensors);
    for (const step_tensor &t : model.tensors) {
        size_bytes_.push_back(t.size_bytes);
        recompute_ns_.push_back(t.recompute_ns);
        input_start_.push_back(static_cast<uint32_t>(inputs_.size()));
        inputs_.insert(inputs_.end(), t.recompute_from.begin(), t.recompute_from.end());
    }
    input_start_.push_back(static_cast<uint32_t>(inputs_.size()));
    d2h_ns_.resize(tensors);
    h2d_ns_.resize(tensors);
    place_.resize(tensors);
    recompute_next_.resize(tensors);
    states_.resize(tensors);
    what_.resize(tensors);
    forecast_left_.resize(tensors);
    recompute_first_.resize(ops_.size());
    fixed_part_.resize(ops_.size());
    pending_.reserve(tensors);
    forecast_pending_.reserve(tensors);
    reserve_.reserve(ops_.size());
}

// Work between two calls is one number. A place for recomputes in front of work ends the work before it.
void evaluator::derive_ops() {
    const auto count = static_cast<uint32_t>(model_.events.size());
    std::vector<uint32_t> op_of_event(count, k_no_index);
    std::vector<uint8_t> is_place(count, 0);
    for (const step_tensor &t : model_.tensors) {
        if (t.recompute_at < count) {
            is_place[t.recompute_at] = 1;
        }
    }
    recomputed_at_.assign(model_.tensors.size(), k_no_index);
    double work_ns = 0;
    const auto add = [&](op_kind what, const step_event &e, uint32_t event) {
        op o;
        o.what = what;
        o.work_ns = std::exchange(work_ns, 0.0);
        o.tensor = e.tensor;
        ops_.push_back(o);
        op_events_.push_back(event);
    };
    for (uint32_t i = 0; i < count; ++i) {
        const step_event &e = model_.events[i];
        if (e.what == step_event_kind::work && is_place[i] != 0) {
            add(op_kind::pause, step_event{}, i == 0 ? 0 : i - 1);
        }
        op_of_event[i] = static_cast<uint32_t>(ops_.size()) - (e.what == step_event_kind::work ? 1U : 0U);
        switch (e.what) {
            case step_event_kind::work:
                work_ns += e.time_ns;
                compute_ns_ += e.time_ns;
                break;
            case step_event_kind::collective_begin:
                add(op_kind::collective_begin, e, i);
                collective_ns_.push_back(e.time_ns);
                break;
            case step_event_kind::collective_end:
                add(op_kind::collective_end, e, i);
                break;
            case step_event_kind::hold_begin:
                add(op_kind::hold_begin, e, i);
                collective_ns_.push_back(e.time_ns);
                break;
            case step_event_kind::hold_end:
                add(op_kind::hold_end, e, i);
                break;
            case step_event_kind::produce:
                add(op_kind::produce, e, i);
                break;
            case step_event_kind::use:
                recomputed_at_[e.tensor] = std::min(recomputed_at_[e.tensor], op_of_event[i]);
                add(op_kind::use, e, i);
                break;
            case step_event_kind::done:
                add(op_kind::done, e, i);
                break;
            case step_event_kind::release:
                add(op_kind::release, e, i);
                break;
        }
    }
    add(op_kind::pause, step_event{}, count == 0 ? 0 : count - 1);
    for (uint32_t t = 0; t < model_.tensors.size(); ++t) {
        const uint32_t at = model_.tensors[t].recompute_at;
        if (at < count) {
            recomputed_at_[t] = op_of_event[at];
        }
    }
    uint64_t next_bytes = 0;
    bool end_next = false;  // what a release frees before the next produce is not made room for twice
    for (auto at = static_cast<uint32_t>(ops_.size()); at-- > 0;) {
        op &o = ops_[at];
        o.next_bytes = end_next ? 0 : next_bytes;
        if (o.what == op_kind::done || o.what == op_kind::release) {
            end_next = true;
        } else if (o.what == op_kind::produce || o.what == op_kind::use) {
            end_next = false;
        }
        if (o.what == op_kind::produce) {
            next_bytes = model_.tensors[o.tensor].size_bytes;
            last_produce_ = std::max(last_produce_, at);
        } else if (o.what == op_kind::use) {
            next_bytes = 0;
        }
    }
    std::vector<uint8_t> wanted(ops_.size(), 0);
    for (uint32_t at = 0; at < ops_.size(); ++at) {
        wanted[at] = ops_[at].what == op_kind::use ? 1 : 0;
    }
    for (const uint32_t at : recomputed_at_) {
        if (at != k_no_index) {
            wanted[at] = 1;
        }
    }
    for (uint32_t at = 0; at < ops_.size(); ++at) {
        if (wanted[at] != 0) {
            use_ops_.push_back(at);
        }
    }
}

// ------------------------------------------------------------------------------------- what follows from a plan --

void evaluator::prepare(const plan &p, const plan_budget &budget) {
    EBB_CHECK(p.placement.size() == model_.tensors.size());
    plan_ = &p;
    where_ = p.placement.data();
    const auto differs = [](const plan_link &a, const plan_link &b) {
        return a.bytes_per_second != b.bytes_per_second || a.latency_ns != b.latency_ns ||
               a.chunk_bytes != b.chunk_bytes;
    };
    if (differs(budget.d2h, d2h_) || differs(budget.h2d, h2d_)) {
        d2h_ = budget.d2h;
        h2d_ = budget.h2d;
        for (size_t t = 0; t < size_bytes_.size(); ++t) {
            d2h_ns_[t] = d2h_.transfer_ns(size_bytes_[t]);
            h2d_ns_[t] = h2d_.transfer_ns(size_bytes_[t]);
        }
    }
    one_pool_ = budget.mode == memory_mode::one_pool;
    exact_slots_ = !one_pool_ && budget.exact_slots;
    if (exact_slots_) {
        slot_of_.resize(size_bytes_.size());
        slots_.begin(p.staging_bytes);
    }
    host_limit_bytes_ = budget.host_bytes;
    const uint64_t apart_bytes = model_.fixed_bytes + (one_pool_ ? 0 : p.staging_bytes);
    pool_bytes_ = budget.device_bytes > apart_bytes ? budget.device_bytes - apart_bytes : 0;
    place_recomputes();
    list_uses();
    if (one_pool_ && !uses_.empty()) {
        sum_fixed_part();
    }

    result_ = {};
    exposed_ns_ = 0;
    pending_.clear();
    freed_.clear();
    freed_.push_back({one_pool_ ? 0 : p.staging_bytes, 0});
    reserve_.reset();
    pending_head_ = freed_head_ = 0;
    window_ = next_use_ = at_ = collective_ = 0;
    held_copies_.clear();
    held_head_ = holds_ = 0;
    prefetch_held_ = false;
    blocked_ = false;
    forecast_done_ = false;
    compute_at_ns_ = d2h_at_ns_ = h2d_at_ns_ = collective_at_ns_ = collective_began_ns_ = moved_ns_ = 0;
    collective_loss_ = budget.collective_loss;
    held_bytes_ = moving_bytes_ = staged_bytes_ = host_bytes_ = host_peak_bytes_ = peak_bytes_ = 0;
}

// What is computed from something that is recomputed too needs it there: it comes at that place at the latest.
void evaluator::place_recomputes() {
    any_recompute_ = false;
    planned_recompute_ns_ = 0;
    std::fill(what_.begin(), what_.end(), tensor_state::absent);
    for (uint32_t t = static_cast<uint32_t>(place_.size()); t-- > 0;) {
        const bool recomputed = where_[t] == tensor_placement::recompute;
        place_[t] = recomputed ? recomputed_at_[t] : k_no_index;
        any_recompute_ |= recomputed;
    }
    if (!any_recompute_) {
        return;
    }
    std::fill(recompute_first_.begin(), recompute_first_.end(), k_no_index);
    for (uint32_t t = static_cast<uint32_t>(place_.size()); t-- > 0;) {
        if (place_[t] == k_no_index) {
            continue;
        }
        planned_recompute_ns_ += recompute_ns_[t];
        recompute_next_[t] = recompute_first_[place_[t]];
        recompute_first_[place_[t]] = t;
        for (const uint32_t from : inputs_of(t)) {
            if (where_[from] == tensor_placement::recompute) {
                place_[from] = std::min(place_[from], place_[t]);
            }
        }
    }
}

void evaluator::list_uses() {
    uses_.clear();
    const auto add = [this](uint32_t at, uint32_t t) {
        if (where_[t] == tensor_placement::offload) {
            uses_.push_back({at, t, false});
        }
    };
    for (const uint32_t at : use_ops_) {
        if (any_recompute_) {
            for (uint32_t t = recompute_first_[at]; t != k_no_index; t = recompute_next_[t]) {
                for (const uint32_t from : inputs_of(t)) {
                    add(at, from);
                }
            }
        }
        if (ops_[at].what == op_kind::use) {
            add(at, ops_[at].tensor);
        }
    }
    for (auto i = static_cast<uint32_t>(uses_.size()); i-- > 0;) {
        states_[uses_[i].tensor].first_use = i;
    }
}

void evaluator::sum_fixed_part() {
    uint64_t held = 0;
    for (uint32_t at = 0; at < ops_.size(); ++at) {
        if (any_recompute_) {
            for (uint32_t t = recompute_first_[at]; t != k_no_index; t = recompute_next_[t]) {
                held += size_bytes_[t];
            }
        }
        uint64_t in_the_making = 0;
        const uint32_t t = ops_[at].tensor;
        if (ops_[at].what == op_kind::produce) {
            (where_[t] == tensor_placement::keep ? held : in_the_making) += size_bytes_[t];
        } else if (ops_[at].what == op_kind::release && where_[t] != tensor_placement::offload) {
            const bool there = where_[t] == tensor_placement::keep || place_[t] != k_no_index;
            held -= there ? size_bytes_[t] : 0;
        }
        fixed_part_[at] = held + in_the_making;
    }
}

// ------------------------------------------------------------------------------------------------------ the run --

const evaluation &evaluator::evaluate(const plan &p, const plan_budget &budget) {
    prepare(p, budget);
    allowed_ns_ = std::numeric_limits<double>::infinity();
    run(p, budget);
    return result_;
}

const evaluation &evaluator::evaluate(const plan &p, const plan_budget &budget, plan_order &order) {
    order.given_up_at.assign(model_.tensors.size(), k_no_index);
    order.prefetch_at.assign(model_.tensors.size(), k_no_index);
    order_ = &order;
    evaluate(p, budget);
    order_ = nullptr;
    return result_;
}

const evaluation *evaluator::evaluate_below(const plan &p, const plan_budget &budget, double step_ns) {
    prepare(p, budget);
    allowed_ns_ = step_ns - compute_ns_ - planned_recompute_ns_;
    if (allowed_ns_ <= 0) {
        share_run_ = 0;
        return nullptr;
    }
    run(p, budget);
    return result_.feasible && result_.step_ns < step_ns ? &result_ : nullptr;
}

void evaluator::run(const plan &p, const plan_budget &budget) {
    const uint64_t least_bytes = model_.fixed_bytes + (one_pool_ ? 0 : p.staging_bytes);
    bool runs = budget.device_bytes >= least_bytes || fail(least_bytes - budget.device_bytes);
    const auto count = static_cast<uint32_t>(ops_.size());
    uint32_t at = 0;
    for (; runs && at < count; ++at) {
        runs = run_op(at) && exposed_ns_ <= allowed_ns_;
    }
    share_run_ = static_cast<double>(at) / static_cast<double>(count);
    result_.feasible = runs;
    result_.step_ns = compute_at_ns_ + moved_ns_ * budget.move_cost;
    result_.compute_ns = compute_ns_;
    result_.device_peak_bytes = peak_bytes_ + least_bytes;
    result_.host_peak_bytes = host_peak_bytes_;
}

inline bool evaluator::run_op(uint32_t at) {
    const op &o = ops_[at];
    compute_at_ns_ += o.work_ns;
    if (any_recompute_ && recompute_first_[at] != k_no_index && !recompute_here(at)) {
        return false;
    }
    at_ = at;
    switch (o.what) {
        case op_kind::pause:
            return true;
        case op_kind::collective_begin:
            begin_collective();
            return true;
        case op_kind::collective_end:
            wait(collective_at_ns_, result_.exposed_collective_ns);
            return true;
        case op_kind::hold_begin:
            begin_collective();
            ++holds_;
            return true;
        case op_kind::hold_end:
            end_hold(at, o.next_bytes);
            return true;
        default:
            return run_call(at);
    }
}

// Copies out that run beside it slow it down: those asked for before are done without a gap.
void evaluator::begin_collective() {
    const double begin_ns = std::max(collective_at_ns_, compute_at_ns_);
    const double alone_ns = collective_ns_[collective_++];
    collective_began_ns_ = begin_ns;
    collective_at_ns_ = begin_ns + alone_ns;
    if (collective_loss_ > 0 && d2h_at_ns_ > begin_ns) {
        const double beside_ns = d2h_at_ns_ - begin_ns;
        const double left_ns = alone_ns - beside_ns * (1 - collective_loss_);
        collective_at_ns_ = left_ns > 0 ? d2h_at_ns_ + left_ns : begin_ns + alone_ns / (1 - collective_loss_);
    }
}

// One that was asked for while a collective runs.
inline void evaluator::copy_out(uint32_t t, double ready_ns) {
    const double begin_ns = std::max(d2h_at_ns_, ready_ns);
    d2h_at_ns_ = begin_ns + d2h_ns_[t];
    moved_ns_ += d2h_ns_[t];
    states_[t].d2h_end_ns = d2h_at_ns_;
    if (collective_loss_ > 0 && collective_at_ns_ > begin_ns) {
        const double beside_ns = std::min(d2h_at_ns_, collective_at_ns_) - std::max(begin_ns, collective_began_ns_);
        collective_at_ns_ += std::max(0.0, beside_ns) * collective_loss_;
    }
}

// A direction in which nothing was held is not made to wait.
void evaluator::end_hold(uint32_t at, uint64_t next_bytes) {
    if (holds_ == 0 || --holds_ != 0) {
        return;
    }
    if (held_head_ < held_copies_.size()) {
        d2h_at_ns_ = std::max(d2h_at_ns_, collective_at_ns_);
        issue_held_to(k_no_index);
    }
    if (std::exchange(prefetch_held_, false)) {
        h2d_at_ns_ = std::max(h2d_at_ns_, collective_at_ns_);
    }
    settle(at, next_bytes);
}

// And those asked for before it; all of them for none.
void evaluator::issue_held_to(uint32_t tensor) {
    while (held_head_ < held_copies_.size()) {
        const held_copy c = held_copies_[held_head_++];
        state &s = states_[c.tensor];
        if (s.held) {
            s.held = false;
            copy_out(c.tensor, c.ready_ns);
        }
        if (c.tensor == tensor) {
            return;
        }
    }
}

// It is handed back, or released: nothing is copied.
void evaluator::cancel_held(uint32_t tensor) {
    states_[tensor].held = false;
    states_[tensor].d2h_end_ns = 0;
    result_.offloaded_bytes -= size_bytes_[tensor];
}

inline bool evaluator::run_call(uint32_t at) {
    const op &o = ops_[at];
    const uint64_t held_before_bytes = held_bytes_;
    if (o.what == op_kind::produce) {
        if (!produce(o)) {
            return false;
        }
    } else if (o.what == op_kind::use) {
        if (where_[o.tensor] == tensor_placement::offload && !use(o.tensor)) {
            return false;
        }
    } else if (o.what == op_kind::done) {
        end_claim(o.tensor);
    } else {
        release(o.tensor);
    }
    // A use frees nothing, unless it made room for itself.
    blocked_ = blocked_ && o.what == op_kind::use && held_bytes_ == held_before_bytes;
    settle(at, o.next_bytes);
    return true;
}

inline bool evaluator::produce(const op &o) {
    const uint32_t t = o.tensor;
    const uint64_t size_bytes = size_bytes_[t];
    hold(size_bytes);
    if (held_bytes_ > pool_bytes_) {
        return fail(held_bytes_ - pool_bytes_);
    }
    if (where_[t] == tensor_placement::keep) {
        what_[t] = tensor_state::held;
    } else if (where_[t] == tensor_placement::recompute) {
        held_bytes_ -= size_bytes;
    } else {
        states_[t].held = holds_ != 0;
        if (holds_ != 0) {
            held_copies_.push_back({t, compute_at_ns_});
        } else {
            copy_out(t, compute_at_ns_);
        }
        states_[t].expected = states_[t].claims = 0;
        what_[t] = tensor_state::source;
        pending_.push_back(t);
        moving_bytes_ += size_bytes;
        result_.offloaded_bytes += size_bytes;
        host_bytes_ += size_bytes;
        host_peak_bytes_ = std::max(host_peak_bytes_, host_bytes_);
        if (host_bytes_ > host_limit_bytes_) {
            result_.missing_on_host = true;
            return fail(host_bytes_ - host_limit_bytes_);
        }
    }
    return true;
}

// Of an offloaded tensor: by its own use, or as what another is computed from.
inline bool evaluator::use(uint32_t t) {
    expected_use &u = uses_[next_use_];
    state &s = states_[t];
    if (u.passed) {
        u.passed = false;
        --s.expected;
    }
    if (what_[t] == tensor_state::source) {
        if (s.held) {
            cancel_held(t);
        }
        what_[t] = tensor_state::forwarded;
    } else if (what_[t] == tensor_state::offloaded && !copy_in_now(t)) {
        return false;
    }
    if (what_[t] == tensor_state::resident) {
        wait(s.h2d_end_ns, result_.exposed_h2d_ns);
    }
    ++s.claims;
    ++next_use_;
    window_ = std::max(window_, next_use_);
    return true;
}

inline void evaluator::end_claim(uint32_t t) {
    if (where_[t] != tensor_placement::offload) {
        return;
    }
    state &s = states_[t];
    s.claims -= s.claims == 0 ? 0 : 1;
    if (s.claims == 0 && what_[t] == tensor_state::resident && s.expected == 0) {
        free_slot(t);
    }
}

inline void evaluator::release(uint32_t t) {
    const state &s = states_[t];
    if (what_[t] == tensor_state::resident) {
        wait(s.h2d_end_ns, result_.exposed_h2d_ns);
        free_slot(t);
    } else if (what_[t] == tensor_state::source || what_[t] == tensor_state::forwarded) {
        if (s.held) {
            cancel_held(t);
        }
        wait(s.d2h_end_ns, result_.exposed_d2h_ns);
        moving_bytes_ -= size_bytes_[t];
        held_bytes_ -= size_bytes_[t];
    } else if (what_[t] == tensor_state::held) {
        held_bytes_ -= size_bytes_[t];
    }
    what_[t] = tensor_state::absent;
    host_bytes_ -= where_[t] == tensor_placement::offload ? size_bytes_[t] : 0;
}

// ---------------------------------------------------------------------------------------------------- recompute --

bool evaluator::recompute_here(uint32_t at) {
    for (uint32_t t = recompute_first_[at]; t != k_no_index; t = recompute_next_[t]) {
        at_ = at - 1;
        for (const uint32_t from : inputs_of(t)) {
            if (where_[from] == tensor_placement::offload && !use(from)) {
                return false;
            }
        }
        if (!make_room_or_drop(size_bytes_[t])) {
            static_cast<void>(fail(held_bytes_ + size_bytes_[t] - pool_bytes_));
            result_.missing_at = op_events_[at] + (ops_[at].what == op_kind::pause ? 1 : 0);
            return false;
        }
        hold(size_bytes_[t]);
        what_[t] = tensor_state::held;
        compute_at_ns_ += recompute_ns_[t];
        result_.recompute_ns += recompute_ns_[t];
        for (const uint32_t from : inputs_of(t)) {
            if (where_[from] == tensor_placement::offload) {
                end_claim(from);
            }
        }
        const op &next = ops_[at];
        blocked_ = false;
        settle(at - 1, next.what == op_kind::produce ? size_bytes_[next.tensor]
                       : next.what == op_kind::use   ? 0
                                                     : next.next_bytes);
    }
    return true;
}

// ------------------------------------------------------------------------------------------------------- room --

inline void evaluator::settle(uint32_t now, uint64_t next_bytes) {
    if (next_bytes != 0 && pending_head_ < pending_.size()) {
        make_room(next_bytes);
    }
    if (!blocked_ && window_ < uses_.size()) {
        prefetch(now);
    }
}

inline void evaluator::make_room(uint64_t next_bytes) {
    while (held_bytes_ + next_bytes > pool_bytes_ && pending_head_ < pending_.size()) {
        const uint32_t oldest = pending_[pending_head_++];
        if (what_[oldest] == tensor_state::source) {
            give_up(oldest);
        }
    }
}

bool evaluator::make_room_or_drop(uint64_t next_bytes) {
    make_room(next_bytes);
    while (held_bytes_ + next_bytes > pool_bytes_) {
        if (!one_pool_ || !drop_last_unclaimed()) {
            return false;
        }
    }
    return true;
}

inline void evaluator::give_up(uint32_t t) {
    state &s = states_[t];
    if (s.held) {
        issue_held_to(t);
    }
    wait(s.d2h_end_ns, result_.exposed_d2h_ns);
    what_[t] = tensor_state::offloaded;
    blocked_ = false;
    held_bytes_ -= size_bytes_[t];
    moving_bytes_ -= size_bytes_[t];
    if (s.first_use < window_) {
        look_again_from(s.first_use);  // it was passed over as one that would be forwarded
    }
    if (order_ != nullptr) {
        order_->given_up_at[t] = op_events_[at_];
    }
}

// ---------------------------------------------------------------------------------------------------- prefetch --

inline void evaluator::prefetch(uint32_t now) {
    for (; window_ < uses_.size(); ++window_) {
        expected_use &u = uses_[window_];
        if (u.passed) {
            continue;
        }
        state &s = states_[u.tensor];
        switch (what_[u.tensor]) {
            case tensor_state::absent:
                return;  // not produced yet
            case tensor_state::source:
                if (!forecast_done_) {
                    forecast();
                }
                if (s.will_be_given_up) {
                    return;
                }
                break;
            case tensor_state::resident:
                u.passed = true;
                ++s.expected;
                break;
            case tensor_state::offloaded:
                if (holds_ != 0) {
                    prefetch_held_ = true;
                    return;
                }
                if (!slot_fits(now, u)) {
                    blocked_ = true;
                    return;
                }
                copy_in(u.tensor);
                u.passed = true;
                s.expected = 1;
                if (order_ != nullptr && order_->prefetch_at[u.tensor] == k_no_index) {
                    order_->prefetch_at[u.tensor] = op_events_[now];
                }
                break;
            default:
                break;
        }
    }
}

inline bool evaluator::slot_fits(uint32_t now, const expected_use &u) {
    const uint64_t size_bytes = size_bytes_[u.tensor];
    if (!one_pool_) {
        return staged_bytes_ + size_bytes <= plan_->staging_bytes && take_slot(u.tensor);
    }
    // Most often it is what is held now that leaves no room.
    return held_bytes_ + size_bytes <= pool_bytes_ &&
           moving_bytes_ + size_bytes + reserve_bytes(now, u.op) <= pool_bytes_;
}

// The most that kept and recomputed tensors hold after now and until an op. The window only moves on, except after a
// drop.
inline uint64_t evaluator::reserve_bytes(uint32_t now, uint32_t until) {
    return reserve_.over(fixed_part_, now, until);
}

// Staging: the bytes are there; where they lie may still leave no room.
bool evaluator::take_slot(uint32_t t) {
    if (!exact_slots_) {
        return true;
    }
    const std::optional<slot_replay::slot> slot = slots_.allocate(size_bytes_[t]);
    if (slot.has_value()) {
        slot_of_[t] = *slot;
    }
    return slot.has_value();
}

inline void evaluator::copy_in(uint32_t t) {
    const uint64_t size_bytes = size_bytes_[t];
    state &s = states_[t];
    double free_at_ns = compute_at_ns_;
    if (one_pool_) {
        hold(size_bytes);
        moving_bytes_ += size_bytes;
    } else if (exact_slots_) {
        free_at_ns = slot_of_[t].free_at_ns;
        staged_bytes_ += size_bytes;
    } else {
        // The bytes that have been free for longest.
        free_at_ns = 0;
        staged_bytes_ += size_bytes;
        for (uint64_t wanted = size_bytes; wanted != 0;) {
            freed_bytes &oldest = freed_[freed_head_];
            const uint64_t taken = std::min(wanted, oldest.size_bytes);
            free_at_ns = std::max(free_at_ns, taken == 0 ? 0 : oldest.at_ns);
            oldest.size_bytes -= taken;
            wanted -= taken;
            freed_head_ += oldest.size_bytes == 0 ? 1 : 0;
        }
    }
    h2d_at_ns_ = std::max({h2d_at_ns_, s.d2h_end_ns, free_at_ns}) + h2d_ns_[t];
    s.h2d_end_ns = h2d_at_ns_;
    moved_ns_ += h2d_ns_[t];
    what_[t] = tensor_state::resident;
    result_.reloaded_bytes += size_bytes;
}

bool evaluator::copy_in_now(uint32_t t) {
    const uint64_t size_bytes = size_bytes_[t];
    if (one_pool_) {
        if (!make_room_or_drop(size_bytes)) {
            return fail(held_bytes_ + size_bytes - pool_bytes_);
        }
    } else {
        while (staged_bytes_ + size_bytes > plan_->staging_bytes || !take_slot(t)) {
            if (!drop_last_unclaimed()) {
                result_.missing_in_staging = true;
                return fail(staged_bytes_ + size_bytes - plan_->staging_bytes);
            }
        }
    }
    copy_in(t);
    return true;
}

inline void evaluator::free_slot(uint32_t t) {
    const uint64_t size_bytes = size_bytes_[t];
    what_[t] = tensor_state::offloaded;
    if (one_pool_) {
        held_bytes_ -= size_bytes;
        moving_bytes_ -= size_bytes;
    } else {
        staged_bytes_ -= size_bytes;
        const double at_ns = std::max(compute_at_ns_, states_[t].h2d_end_ns);
        if (exact_slots_) {
            slots_.free(slot_of_[t].segment, at_ns);
        } else {
            freed_.push_back({size_bytes, at_ns});
        }
    }
}

// The one that is needed last; in one pool its memory is compute's behind its copy.
bool evaluator::drop_last_unclaimed() {
    for (uint32_t i = window_; i-- > next_use_;) {
        const uint32_t t = uses_[i].tensor;
        state &s = states_[t];
        if (!uses_[i].passed || what_[t] != tensor_state::resident || s.claims != 0) {
            continue;
        }
        for (uint32_t k = next_use_; k <= i; ++k) {
            if (uses_[k].tensor == t) {
                uses_[k].passed = false;
                window_ = std::min(window_, k);
            }
        }
        s.expected = 0;
        if (one_pool_) {
            wait(s.h2d_end_ns, result_.exposed_h2d_ns);
        }
        free_slot(t);
        blocked_ = false;
        return true;
    }
    return false;
}

void evaluator::look_again_from(uint32_t use_index) {
    window_ = std::min(window_, use_index);
}

inline void evaluator::hold(uint64_t size_bytes) {
    held_bytes_ += size_bytes;
    peak_bytes_ = std::max(peak_bytes_, held_bytes_);
}

inline void evaluator::wait(double until_ns, double &exposed_ns) {
    if (until_ns > compute_at_ns_) {
        exposed_ns += until_ns - compute_at_ns_;
        exposed_ns_ += until_ns - compute_at_ns_;
        compute_at_ns_ = until_ns;
    }
}

bool evaluator::fail(uint64_t missing_bytes) {
    result_.missing_bytes = missing_bytes;
    result_.missing_at = op_events_[at_];
    return false;
}

// ---------------------------------------------------------------------------------------------------- forecast --

// The room rule over the whole step with all memory there for kept, recomputed and offloaded tensors, none for slots:
// what step_record::forecast() tells the runtime. Needed only when the prefetch comes to a source.
void evaluator::forecast() {
    forecast_done_ = true;
    forecast_pending_.clear();
    forecast_head_ = 0;
    forecast_sources_ = 0;
    forecast_held_bytes_ = 0;
    std::fill(forecast_left_.begin(), forecast_left_.end(), uint8_t{1});
    const auto count = static_cast<uint32_t>(ops_.size());
    for (uint32_t at = 0; at < count; ++at) {
        if (at > last_produce_ && (!any_recompute_ || forecast_sources_ == 0)) {
            return;  // nothing will be given up any more
        }
        if (any_recompute_ && recompute_first_[at] != k_no_index) {
            forecast_recomputes(at);
        }
        if (ops_[at].tensor != k_no_index) {
            forecast_call(ops_[at]);
        }
    }
}

inline void evaluator::forecast_call(const op &o) {
    const uint32_t t = o.tensor;
    const tensor_placement where = where_[t];
    if (o.what == op_kind::produce && where != tensor_placement::recompute) {
        forecast_held_bytes_ += size_bytes_[t];
        if (where == tensor_placement::offload) {
            forecast_pending_.push_back(t);
            forecast_left_[t] = 0;
            ++forecast_sources_;
            states_[t].will_be_given_up = false;
        }
    } else if (o.what == op_kind::use) {
        forecast_leave(t);
    } else if (o.what == op_kind::release) {
        forecast_leave(t);
        const bool given_up = where == tensor_placement::offload && states_[t].will_be_given_up;
        const bool never_there = where == tensor_placement::recompute && place_[t] == k_no_index;
        forecast_held_bytes_ -= given_up || never_there ? 0 : size_bytes_[t];
    }
    forecast_give_ups(o.next_bytes);
}

void evaluator::forecast_recomputes(uint32_t at) {
    for (uint32_t t = recompute_first_[at]; t != k_no_index; t = recompute_next_[t]) {
        for (const uint32_t from : inputs_of(t)) {
            forecast_leave(from);
        }
        forecast_give_ups(size_bytes_[t]);
        forecast_held_bytes_ += size_bytes_[t];
    }
}

inline void evaluator::forecast_leave(uint32_t t) {
    forecast_sources_ -= forecast_left_[t] == 0 ? 1 : 0;
    forecast_left_[t] = 1;
}

inline void evaluator::forecast_give_ups(uint64_t next_bytes) {
    while (next_bytes != 0 && forecast_held_bytes_ + next_bytes > pool_bytes_ &&
           forecast_head_ < forecast_pending_.size()) {
        const uint32_t oldest = forecast_pending_[forecast_head_++];
        if (forecast_left_[oldest] == 0) {
            forecast_leave(oldest);
            states_[oldest].will_be_given_up = true;
            forecast_held_bytes_ -= size_bytes_[oldest];
        }
    }
}

}  // namespace ebb
