#include "runtime/verifier.hpp"

#include <algorithm>
#include <utility>

namespace ebb {

result<verifier::record_id> verifier::open(std::string who) {
    if (free_records_.empty()) {
        result<uint64_t *> sums = words_.take(k_sums);
        if (!sums.ok()) {
            return status(sums.why().code(), "verify mode's sums: " + sums.why().text());
        }
        records_.emplace_back().sums = sums.value();
        free_records_.push_back(static_cast<record_id>(records_.size() - 1));
    }
    const record_id id = free_records_.back();
    free_records_.pop_back();
    uint64_t *const sums = records_[id].sums;
    records_[id] = record{};
    records_[id].sums = sums;
    records_[id].who = std::move(who);
    std::fill(sums, sums + k_sums, 0);
    return id;
}

void verifier::close(record_id id) {
    records_[id].closed = true;
    if (records_[id].open_checks == 0) {
        free_records_.push_back(id);
    }
}

// A thread that computes by itself has nothing in flight: its memory can be read here and now. Only the host device has
// such callers.
status verifier::sum_source(record_id id, stream_id home, const void *data, uint64_t size_bytes) {
    if (home == k_calling_thread) {
        records_[id].sums[k_source] = checksum_bytes(0, data, size_bytes);
        return {};
    }
    return device_.checksum(home, data, size_bytes, &records_[id].sums[k_source]);
}

status verifier::sum_source_again(record_id id, stream_id lane, const void *data, uint64_t size_bytes) {
    return device_.checksum(lane, data, size_bytes, &records_[id].sums[k_source_again]);
}

status verifier::sum_block(record_id id, stream_id lane, const void *data, uint64_t size_bytes) {
    return device_.checksum(lane, data, size_bytes, &records_[id].sums[k_block]);
}

void verifier::check_copy(record_id id, ticket on_lane) {
    ++records_[id].open_checks;
    checks_.push_back({id, k_copy, records_[id].at_home, on_lane});
}

// The record is used again once the sum has been written.
void verifier::check_nothing(record_id id) {
    ++records_[id].open_checks;
    checks_.push_back({id, k_nothing, records_[id].at_home, {}});
}

void verifier::abandon(record_id id) {
    records_[id].who.clear();
}

status verifier::sum_reload(stream_id lane, const void *data, uint64_t size_bytes, uint32_t &sum) {
    if (free_sums_.empty()) {
        result<uint64_t *> fresh = words_.take(1);
        if (!fresh.ok()) {
            return {fresh.why().code(), "verify mode's sums: " + fresh.why().text()};
        }
        reload_sums_.push_back(fresh.value());
        free_sums_.push_back(static_cast<uint32_t>(reload_sums_.size() - 1));
    }
    sum = free_sums_.back();
    free_sums_.pop_back();
    *reload_sums_[sum] = 0;
    return device_.checksum(lane, data, size_bytes, reload_sums_[sum]);
}

void verifier::check_reload(record_id id, uint32_t sum, ticket on_lane) {
    ++records_[id].open_checks;
    // The home stream may be far behind the lanes.
    checks_.push_back({id, sum, records_[id].at_home, on_lane});
}

status verifier::poll() {
    status first_failure;
    size_t kept = 0;
    for (size_t i = 0; i < checks_.size(); ++i) {
        const check c = checks_[i];
        result<bool> one = lines_.done(c.first);
        result<bool> two = one.ok() && one.value() ? lines_.done(c.second) : std::move(one);
        if (!two.ok() || !two.value()) {
            if (!two.ok() && first_failure.ok()) {
                first_failure = two.why();
            }
            checks_[kept++] = c;
            continue;
        }
        if (status s = compare(c); !s.ok() && first_failure.ok()) {
            first_failure = std::move(s);
        }
        finish(c);
    }
    checks_.resize(kept);
    return first_failure;
}

status verifier::compare(const check &c) const {
    const record &r = records_[c.record];
    if (c.reload_sum == k_nothing) {
        return {};
    }
    if (c.reload_sum == k_copy) {
        if (r.sums[k_source] != r.sums[k_source_again]) {
            return {code::data_mismatch, "activation '" + r.who +
                                             "' was changed in place between its offload call and the end of its copy "
                                             "(checksum 2 of 3, source): the copy cannot be trusted"};
        }
        if (r.sums[k_source] != r.sums[k_block]) {
            return {code::data_mismatch,
                    "activation '" + r.who + "' was not copied right to host memory (checksum 2 of 3, block)"};
        }
        return {};
    }
    if (r.sums[k_source] != *reload_sums_[c.reload_sum]) {
        return {code::data_mismatch, "activation '" + r.who +
                                         "' came back different: its host memory or the reload was damaged "
                                         "(checksum 3 of 3, after reload)"};
    }
    return {};
}

void verifier::finish(const check &c) {
    if (c.reload_sum != k_copy && c.reload_sum != k_nothing) {
        free_sums_.push_back(c.reload_sum);
    }
    record &r = records_[c.record];
    if (--r.open_checks == 0 && r.closed) {
        free_records_.push_back(c.record);
    }
}

}  // namespace ebb
