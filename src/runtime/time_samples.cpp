#include "runtime/time_samples.hpp"

namespace ebb {

time_samples::~time_samples() {
    for (const pair &p : pairs_) {
        static_cast<void>(device_.destroy_event(p.start));
        static_cast<void>(device_.destroy_event(p.end));
    }
}

result<time_samples::sample_id> time_samples::begin(stream_id stream, const sample &what) {
    if (free_.empty()) {
        pair fresh;
        result<event_id> start = device_.create_event(event_kind::timed);
        if (!start.ok()) {
            return start.why();
        }
        result<event_id> end = device_.create_event(event_kind::timed);
        if (!end.ok()) {
            static_cast<void>(device_.destroy_event(start.value()));
            return end.why();
        }
        fresh.start = start.value();
        fresh.end = end.value();
        pairs_.push_back(fresh);
        free_.push_back(static_cast<sample_id>(pairs_.size() - 1));
    }
    const sample_id id = free_.back();
    pair &p = pairs_[id];
    EBB_TRY(device_.record_event(p.start, stream));
    free_.pop_back();
    p.stream = stream;
    p.what = what;
    return id;
}

status time_samples::end(sample_id id) {
    pair &p = pairs_[id];
    EBB_TRY(device_.record_event(p.end, p.stream));
    open_.push_back(id);
    return {};
}

result<bool> time_samples::is_over(sample_id id) {
    return device_.event_done(pairs_[id].end);
}

}  // namespace ebb
