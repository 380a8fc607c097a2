// Times that nobody could rely on: what is ready begins and ends at random instants, all of it side by side, so that
// whatever no stream or event orders happens in any order. For finding orders that are missing, not for predicting.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <queue>
#include <random>
#include <vector>

#include "device/sim/sim_machine.hpp"

namespace ebb {

class shuffled_timing {
public:
    // The begin, two between, and the end.
    static constexpr uint32_t k_instants = 4;

    explicit shuffled_timing(uint64_t seed);

    [[nodiscard]] sim_time_ps now() const noexcept { return now_; }
    [[nodiscard]] bool idle() const noexcept { return queue_.empty(); }
    [[nodiscard]] uint64_t draw() { return random_(); }

    // Ready now. The piece is a small number that is not in use, the stream one of a few.
    void submit(uint32_t piece, uint32_t stream);

    // Goes on to the next instant of a piece, if that is not after `limit`; otherwise to `limit`.
    struct instant {
        bool any = false;
        uint32_t piece = 0;
        uint32_t number = 0;  // below k_instants
        sim_time_ps began_ps = 0;
    };
    instant advance(sim_time_ps limit);

private:
    struct due {
        sim_time_ps time_ps;
        uint64_t order;  // of what falls on one instant: random
        uint32_t piece;
        uint32_t number;
        bool operator<(const due &other) const noexcept {  // the queue gives the largest first
            return time_ps != other.time_ps ? time_ps > other.time_ps : order > other.order;
        }
    };

    [[nodiscard]] sim_time_ps draw_length(uint32_t pace);

    std::mt19937_64 random_;
    std::vector<uint32_t> pace_;  // by stream: how long its work takes, as a power of two
    sim_time_ps now_ = 0;
    std::priority_queue<due> queue_;
    std::vector<std::array<sim_time_ps, k_instants>> times_;  // by piece
};

}  // namespace ebb
