#include "device/sim/shuffled_timing.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace ebb {
namespace {

// Work takes from about a nanosecond to some milliseconds. Each stream has a pace of its own in a run, so that there
// are runs in which one is far behind everything else, and runs in which the host is.
constexpr uint32_t k_shuffled_fastest_log2 = 14, k_shuffled_slowest_log2 = 31, k_shuffled_spread_log2 = 4;

}  // namespace

shuffled_timing::shuffled_timing(uint64_t seed) : random_(seed) {}

sim_time_ps shuffled_timing::draw_length(uint32_t pace) {
    const auto log2 = pace - k_shuffled_spread_log2 + static_cast<uint32_t>(random_() % (2 * k_shuffled_spread_log2));
    const sim_time_ps least = sim_time_ps{1} << log2;
    return least + random_() % least;
}

void shuffled_timing::submit(uint32_t piece, uint32_t stream) {
    if (times_.size() <= piece) {
        times_.resize(piece + size_t{1});
    }
    while (pace_.size() <= stream) {
        pace_.push_back(k_shuffled_fastest_log2 +
                        static_cast<uint32_t>(random_() % (k_shuffled_slowest_log2 - k_shuffled_fastest_log2 + 1)));
    }
    std::array<sim_time_ps, k_instants> &times = times_[piece];
    // Half of the pieces begin at once: otherwise hardly two would begin together.
    const sim_time_ps begin = now_ + (random_() % 2 == 0 ? 0 : draw_length(pace_[stream]));
    const sim_time_ps length = draw_length(pace_[stream]);
    times = {begin, begin + random_() % length, begin + random_() % length, begin + length};
    std::sort(times.begin(), times.end());
    queue_.push({times[0], random_(), piece, 0});
}

shuffled_timing::instant shuffled_timing::advance(sim_time_ps limit) {
    EBB_CHECK(limit >= now_);
    if (queue_.empty() || queue_.top().time_ps > limit) {
        now_ = limit;
        return {};
    }
    const due next = queue_.top();
    queue_.pop();
    now_ = next.time_ps;
    const std::array<sim_time_ps, k_instants> &times = times_[next.piece];
    if (next.number + 1 < k_instants) {
        queue_.push({times[next.number + 1], random_(), next.piece, next.number + 1});
    }
    return {true, next.piece, next.number, times[0]};
}

}  // namespace ebb
