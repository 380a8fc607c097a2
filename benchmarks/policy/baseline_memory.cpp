#include "policy/baseline_memory.hpp"

#include <algorithm>

namespace ebb::baselines {

result<uint64_t> baseline_memory::device_peak_bytes(device &on, event_id start) const {
    struct timed_change {
        uint64_t at_ns;
        int64_t size_bytes;
    };
    std::vector<timed_change> timed;
    timed.reserve(changes_.size());
    for (const change &c : changes_) {
        const result<uint64_t> at_ns = on.elapsed_ns(start, c.at);
        if (!at_ns.ok()) {
            return at_ns.why();
        }
        const result<uint64_t> and_at_ns = on.elapsed_ns(start, c.and_at);
        if (!and_at_ns.ok()) {
            return and_at_ns.why();
        }
        timed.push_back({std::max(at_ns.value(), and_at_ns.value()), c.size_bytes});
    }
    // At one time in the order of the calls, as on one stream.
    std::stable_sort(timed.begin(), timed.end(),
                     [](const timed_change &a, const timed_change &b) { return a.at_ns < b.at_ns; });
    int64_t held_bytes = 0;
    int64_t peak_bytes = 0;
    for (const timed_change &c : timed) {
        held_bytes += c.size_bytes;
        peak_bytes = std::max(peak_bytes, held_bytes);
    }
    return fixed_bytes_ + static_cast<uint64_t>(peak_bytes);
}

}  // namespace ebb::baselines
