#include "device/sim/sim_checker.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ebb {
namespace {

constexpr size_t k_kept_violations = 100;

uint64_t sim_address(const void *data) noexcept {
    return reinterpret_cast<uintptr_t>(data);
}

}  // namespace

// ------------------------------------------------------------------------------------------------------ memory --

void sim_checker::allocated(const void *data, uint64_t size_bytes) {
    memory_.set(sim_address(data), sim_address(data) + size_bytes, {shadow_memory::state::undefined, 0, 0});
}

void sim_checker::freed(const void *data, uint64_t size_bytes) {
    const sim_write range{const_cast<void *>(data), size_bytes, 0};
    at_once(add(sim_action::free, 0, {}, {&range, 1}));
}

void sim_checker::at_once(access_id id) {
    access &a = accesses_[id];
    const bool frees = a.who.action == sim_action::free;
    if (frees) {
        check_against_active(a, sim_fault::frees_what_is_used, sim_fault::frees_what_is_used);
    }
    for (const span_of_memory &range : a.writes) {
        if (frees) {
            check_is_memory(a, range);
        }
        memory_.set(range.begin, range.end,
                    {frees ? shadow_memory::state::none : shadow_memory::state::undefined, 0, 0});
    }
    finish(id);
}

// ---------------------------------------------------------------------------------------------------- accesses --

sim_checker::access_id sim_checker::add(sim_action action, uint64_t stream, std::span<const sim_read> reads,
                                        std::span<const sim_write> writes) {
    if (unused_.empty()) {
        unused_.push_back(static_cast<access_id>(accesses_.size()));
        accesses_.emplace_back();
    }
    const access_id id = unused_.back();
    unused_.pop_back();
    access &a = accesses_[id];
    a.who = {action, ++operation_count_, stream};
    for (const sim_read &r : reads) {
        if (r.size_bytes != 0) {
            a.reads.push_back({sim_address(r.data), sim_address(r.data) + r.size_bytes, r.tag, r.position_bytes});
        }
    }
    for (const sim_write &w : writes) {
        if (w.size_bytes != 0) {
            a.writes.push_back({sim_address(w.data), sim_address(w.data) + w.size_bytes, w.tag, w.position_bytes});
        }
    }
    return id;
}

void sim_checker::finish(access_id id) {
    access &a = accesses_[id];
    a.reads.clear();
    a.writes.clear();
    a.taken.clear();
    a.reported = 0;
    unused_.push_back(id);
}

void sim_checker::submit(uint32_t piece, access_id touched, uint32_t stream) {
    if (by_piece_.size() <= piece) {
        by_piece_.resize(piece + size_t{1});
    }
    by_piece_[piece] = touched;
    timing_.submit(piece, stream);
}

sim_checker::progress sim_checker::advance(sim_time_ps limit) {
    const shuffled_timing::instant at = timing_.advance(limit);
    if (!at.any) {
        return {};
    }
    const access_id id = by_piece_[at.piece];
    if (at.number == 0) {
        begin(id);
    }
    access &a = accesses_[id];
    look(a);
    if (copies(a)) {
        take_part(a, at.number);
    }
    if (at.number + 1 < shuffled_timing::k_instants) {
        if (at.number == 0) {
            for (const span_of_memory &w : a.writes) {
                memory_.set(w.begin, w.end, {shadow_memory::state::poisoned, a.who.number, 0});
            }
        }
        return {true, false, 0, 0};
    }
    end(id);
    return {true, true, at.piece, at.began_ps};
}

void sim_checker::begin(access_id id) {
    access &a = accesses_[id];
    check_against_active(a, sim_fault::writes_what_is_read, sim_fault::writes_what_is_written);
    for (const span_of_memory &w : a.writes) {
        check_is_memory(a, w);
    }
    std::iota(a.part_at.begin(), a.part_at.end(), uint8_t{0});
    for (size_t i = a.part_at.size(); i-- > 1;) {
        std::swap(a.part_at[i], a.part_at[timing_.draw() % (i + 1)]);
    }
    active_.push_back(id);
}

void sim_checker::end(access_id id) {
    access &a = accesses_[id];
    active_.erase(std::find(active_.begin(), active_.end(), id));
    for (const span_of_memory &w : a.writes) {
        check_is_memory(a, w);
        // Memory that was freed meanwhile does not come back by being written.
        found_.clear();
        memory_.look(w.begin, w.end, found_);
        for (const shadow_memory::range &r : found_) {
            if (r.holds.what != shadow_memory::state::none) {
                const auto what = w.tag == k_any_tag ? shadow_memory::state::undefined : shadow_memory::state::tagged;
                memory_.set(r.begin, r.end, {what, w.tag, w.position_bytes + (r.begin - w.begin)});
            }
        }
    }
    if (copies(a) && a.reported == 0) {
        land_copy(a);
    }
    finish(id);
}

// Only of a copy with which nothing was wrong: what another one leaves behind stays undefined.
void sim_checker::land_copy(const access &a) {
    if (a.reads.empty()) {
        return;
    }
    const uint64_t forward = a.writes.front().begin - a.reads.front().begin;
    for (const shadow_memory::range &r : a.taken) {
        memory_.set(r.begin + forward, r.end + forward, r.holds);
    }
}

// ----------------------------------------------------------------------------------------------------- looking --

void sim_checker::look(access &a) {
    for (const span_of_memory &read : a.reads) {
        look_at(a, read);
    }
}

void sim_checker::look_at(access &a, const span_of_memory &read) {
    found_.clear();
    memory_.look(read.begin, read.end, found_);
    for (const shadow_memory::range &r : found_) {
        const shadow_memory::content &holds = r.holds;
        sim_violation seen;
        seen.address = r.begin;
        seen.size_bytes = r.end - r.begin;
        if (holds.what == shadow_memory::state::none) {
            seen.fault = sim_fault::touches_no_memory;
            report(a, seen);
        } else if (holds.what == shadow_memory::state::poisoned) {
            if (holds.tag != a.who.number) {  // its own output may lie over its input
                seen.fault = sim_fault::reads_what_is_written;
                seen.other = active_operation(holds.tag);
                report(a, seen);
            }
        } else if (read.tag != k_any_tag) {
            const bool tagged = holds.what == shadow_memory::state::tagged;
            seen.expected_tag = read.tag;
            seen.expected_position_bytes = read.position_bytes + (r.begin - read.begin);
            seen.found_tag = tagged ? holds.tag : k_any_tag;
            seen.found_position_bytes = tagged ? holds.position_bytes : 0;
            if (seen.found_tag != seen.expected_tag || seen.found_position_bytes != seen.expected_position_bytes) {
                report(a, seen);
            }
        }
    }
}

void sim_checker::take_part(access &a, uint32_t instant) {
    if (a.reads.empty()) {
        return;
    }
    const span_of_memory &source = a.reads.front();
    const uint64_t part = a.part_at[instant];
    const uint64_t size_bytes = source.end - source.begin;
    const uint64_t step = size_bytes / shuffled_timing::k_instants;
    const uint64_t begin = source.begin + part * step;
    const uint64_t end = part + 1 == shuffled_timing::k_instants ? source.end : begin + step;
    if (begin < end) {
        memory_.look(begin, end, a.taken);
    }
}

void sim_checker::check_is_memory(access &a, const span_of_memory &range) {
    found_.clear();
    memory_.look(range.begin, range.end, found_);
    for (const shadow_memory::range &r : found_) {
        if (r.holds.what == shadow_memory::state::none) {
            sim_violation seen;
            seen.fault = sim_fault::touches_no_memory;
            seen.address = r.begin;
            seen.size_bytes = r.end - r.begin;
            report(a, seen);
        }
    }
}

void sim_checker::check_against_active(access &a, sim_fault with_readers, sim_fault with_writers) {
    for (const access_id other : active_) {
        const access &b = accesses_[other];
        report_overlaps(a, b.who, b.reads, with_readers);
        report_overlaps(a, b.who, b.writes, with_writers);
    }
}

void sim_checker::report_overlaps(access &a, const sim_operation &other, const std::vector<span_of_memory> &touched,
                                  sim_fault fault) {
    for (const span_of_memory &theirs : touched) {
        for (const span_of_memory &ours : a.writes) {
            sim_violation seen;
            seen.fault = fault;
            seen.address = std::max(ours.begin, theirs.begin);
            const uint64_t end = std::min(ours.end, theirs.end);
            if (seen.address < end) {
                seen.size_bytes = end - seen.address;
                seen.other = other;
                report(a, seen);
            }
        }
    }
}

sim_operation sim_checker::active_operation(uint64_t number) const noexcept {
    for (const access_id id : active_) {
        if (accesses_[id].who.number == number) {
            return accesses_[id].who;
        }
    }
    return {sim_action::kernel, number, 0};
}

void sim_checker::report(access &a, sim_violation violation) {
    const uint32_t bit = 1U << static_cast<uint32_t>(violation.fault);
    if ((a.reported & bit) != 0) {
        return;
    }
    a.reported |= bit;
    violation.who = a.who;
    violation.time_ps = timing_.now();
    ++violation_count_;
    if (violations_.size() < k_kept_violations) {
        violations_.push_back(violation);
    }
}

}  // namespace ebb
