#include "device/sim/sim_streams.hpp"

#include <limits>

#include "base/check.hpp"

namespace ebb {

sim_streams::index sim_streams::create() {
    if (free_streams_.empty()) {
        streams_.emplace_back();
        return static_cast<index>(streams_.size() - 1);
    }
    const index made = free_streams_.back();
    free_streams_.pop_back();
    streams_[made] = {};
    return made;
}

void sim_streams::destroy(index s) {
    if (streams_[s].first == k_none) {
        free_streams_.push_back(s);
    } else {
        streams_[s].ending = true;
    }
}

// ------------------------------------------------------------------------------------------------ enqueueing --

sim_streams::index sim_streams::add(index s, kind what) {
    if (free_operation_ == k_none) {
        operations_.emplace_back();
        free_operation_ = static_cast<index>(operations_.size() - 1);
    }
    const index made = free_operation_;
    operation &o = operations_[made];
    free_operation_ = o.next;
    o.what = what;
    o.submitted = false;
    o.stream = s;
    o.next = k_none;
    stream &on = streams_[s];
    (on.first == k_none ? on.first : operations_[on.last].next) = made;
    on.last = made;
    ++operation_count_;
    return made;
}

void sim_streams::work(index s, const sim_work &work) {
    const index made = add(s, kind::work);
    operations_[made].work = work;
    if (streams_[s].first == made) {
        proceed(s);
    }
}

void sim_streams::at_once(index s, sim_checker::access_id access) {
    const index made = add(s, kind::at_once);
    operations_[made].work.access = access;
    if (streams_[s].first == made) {
        proceed(s);
    }
}

sim_streams::index sim_streams::new_mark() {
    if (free_mark_ == k_none) {
        marks_.emplace_back();
        free_mark_ = static_cast<index>(marks_.size() - 1);
    }
    const index made = free_mark_;
    free_mark_ = marks_[made].first_waiter;
    marks_[made] = {};
    return made;
}

sim_streams::index sim_streams::mark(index s) {
    const index point = new_mark();
    marks_[point].holds = 2;  // the caller's, and the operation's
    const index made = add(s, kind::mark);
    operations_[made].mark = point;
    if (streams_[s].first == made) {
        proceed(s);
    }
    return point;
}

void sim_streams::wait(index s, index point) {
    hold(point);
    const index made = add(s, kind::wait);
    operations_[made].mark = point;
    if (streams_[s].first == made) {
        proceed(s);
    }
}

sim_streams::index sim_streams::gate(index s) {
    return add(s, kind::gate);
}

void sim_streams::open(index gate) {
    operation &o = operations_[gate];
    EBB_CHECK(o.what == kind::gate);
    o.submitted = true;  // open
    if (streams_[o.stream].first == gate) {
        proceed(o.stream);
    }
}

void sim_streams::release(index point) {
    mark_record &m = marks_[point];
    EBB_CHECK(m.holds > 0);
    if (--m.holds == 0) {
        EBB_CHECK(m.first_waiter == k_none);
        m.first_waiter = free_mark_;
        free_mark_ = point;
    }
}

// ------------------------------------------------------------------------------------------------- going on --

// Everything that comes first on the stream and takes no time, and on the streams that this lets go on.
void sim_streams::proceed(index s) {
    ready_.push_back(s);
    while (!ready_.empty()) {
        const index on = ready_.back();
        ready_.pop_back();
        while (streams_[on].first != k_none && step(on, operations_[streams_[on].first])) {
        }
        if (streams_[on].ending && streams_[on].first == k_none) {
            streams_[on].ending = false;
            free_streams_.push_back(on);
        }
    }
}

// False: it is not done now.
bool sim_streams::step(index s, operation &first) {
    switch (first.what) {
        case kind::work:
            if (!first.submitted) {
                first.submitted = true;
                if (checker_ == nullptr) {
                    engines_.submit(streams_[s].first, first.work);
                } else {
                    checker_->submit(streams_[s].first, first.work.access, s);
                }
            }
            return false;
        case kind::mark:
            note(first, now());
            pass(first.mark);
            break;
        case kind::wait: {
            mark_record &m = marks_[first.mark];
            if (!m.passed) {
                streams_[s].next = m.first_waiter;
                m.first_waiter = s;
                return false;
            }
            release(first.mark);
            break;
        }
        case kind::gate:
            if (!first.submitted) {
                return false;
            }
            break;
        case kind::at_once:
            checker_->at_once(first.work.access);
            break;
    }
    finish_first(s);
    return true;
}

void sim_streams::pass(index point) {
    mark_record &m = marks_[point];
    m.passed = true;
    m.at = now();
    for (index s = m.first_waiter; s != k_none; s = streams_[s].next) {
        ready_.push_back(s);
    }
    m.first_waiter = k_none;
    release(point);
}

void sim_streams::finish_first(index s) {
    const index done = streams_[s].first;
    streams_[s].first = operations_[done].next;
    operations_[done].next = free_operation_;
    free_operation_ = done;
}

bool sim_streams::advance(sim_time_ps limit) {
    if (checker_ != nullptr) {
        return advance_checked(limit);
    }
    const sim_engines::ended end = engines_.advance(limit);
    if (end.any) {
        finish_work(end.piece, end.began_ps);
    }
    return end.any;
}

bool sim_streams::advance_checked(sim_time_ps limit) {
    const sim_checker::progress at = checker_->advance(limit);
    if (at.ended) {
        finish_work(at.piece, at.began_ps);
    }
    return at.any;
}

void sim_streams::finish_work(index piece, sim_time_ps began) {
    const index s = operations_[piece].stream;
    note(operations_[piece], began);
    finish_first(s);
    proceed(s);
}

void sim_streams::run_until(sim_time_ps time) {
    while (advance(time)) {
    }
}

bool sim_streams::run_until_passed(index point) {
    while (!marks_[point].passed) {
        if (idle()) {
            return false;
        }
        EBB_CHECK(advance(std::numeric_limits<sim_time_ps>::max()));
    }
    return true;
}

void sim_streams::run_until_idle() {
    while (!idle()) {
        EBB_CHECK(advance(std::numeric_limits<sim_time_ps>::max()));
    }
}

void sim_streams::note(const operation &done, sim_time_ps began) {
    const auto mix = [this](uint64_t word) {
        log_hash_ = (log_hash_ ^ word) * 0x100000001B3ULL;
        log_hash_ ^= log_hash_ >> 29U;
    };
    const auto engine = done.what == kind::work ? static_cast<uint64_t>(done.work.engine) : 0;
    mix(static_cast<uint64_t>(done.what) | engine << 8U | uint64_t{done.stream} << 16U);
    mix(began);
    mix(now());
}

}  // namespace ebb
