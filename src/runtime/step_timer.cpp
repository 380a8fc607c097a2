#include "runtime/step_timer.hpp"

#include <algorithm>

namespace ebb {

step_timer::~step_timer() {
    for (const event_id e : events_) {
        static_cast<void>(device_.destroy_event(e));
    }
}

void step_timer::reset(uint32_t event_count, uint32_t collective_count) {
    event_count_ = event_count;
    taken_.assign(event_count, {});
    for (std::vector<double> &times : taken_) {
        times.reserve(k_least_steps);
    }
    collectives_.assign(collective_count, {});
    exposed_ns_.assign(event_count + 1, 0);
    steps_taken_ = 0;
    points_ = 0;
    timing_ = ended_ = false;
}

bool step_timer::begin(uint64_t step) {
    if (ended_ || complete() || event_count_ == 0) {
        return false;
    }
    while (events_.size() < event_count_) {
        result<event_id> fresh = device_.create_event(event_kind::timed);
        if (!fresh.ok()) {
            return false;
        }
        events_.push_back(fresh.value());
    }
    std::fill(exposed_ns_.begin(), exposed_ns_.end(), 0.0);
    points_ = 0;
    step_ = step;
    timing_ = true;
    return true;
}

void step_timer::point(stream_id stream) {
    if (!timing_) {
        return;
    }
    if (points_ == event_count_ || !device_.record_event(events_[points_], stream).ok()) {
        timing_ = false;
        return;
    }
    ++points_;
}

void step_timer::end() {
    ended_ = timing_ && points_ == event_count_;
    timing_ = false;
}

void step_timer::exposed(uint64_t step, uint32_t place, uint64_t time_ns) {
    if (step == step_ && place < exposed_ns_.size()) {
        exposed_ns_[place] += static_cast<double>(time_ns);
    }
}

status step_timer::poll() {
    if (!ended_) {
        return {};
    }
    // Events of several streams: the last one of a stream may be any.
    for (const event_id e : events_) {
        result<bool> done = device_.event_done(e);
        if (!done.ok()) {
            return done.why();
        }
        if (!done.value()) {
            return {};
        }
    }
    ended_ = false;
    return read_points();
}

status step_timer::read_points() {
    for (uint32_t i = 1; i < event_count_; ++i) {
        result<uint64_t> time = device_.elapsed_ns(events_[i - 1], events_[i]);
        if (!time.ok()) {
            return time.why();
        }
        taken_[i].push_back(std::max(0.0, static_cast<double>(time.value()) - exposed_ns_[i]));
    }
    ++steps_taken_;
    return {};
}

void step_timer::collective(uint64_t step, uint32_t number, uint64_t time_ns) {
    if (step == step_ && number < collectives_.size()) {
        collectives_[number].push_back(static_cast<double>(time_ns));
    }
}

std::vector<double> step_timer::lower_quartiles(const std::vector<std::vector<double>> &taken) {
    std::vector<double> all(taken.size(), 0);
    for (size_t i = 0; i < taken.size(); ++i) {
        std::vector<double> sorted = taken[i];
        std::sort(sorted.begin(), sorted.end());
        all[i] = sorted.empty() ? 0 : sorted[(sorted.size() - 1) / 4];
    }
    return all;
}

}  // namespace ebb
