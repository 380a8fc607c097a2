// How long the work between the calls of a step takes: a timed event before each produce and use call's own waits, in
// the steps that are sampled, less what our waits in between took. A lower quartile over the steps, since what disturbs
// a step makes it longer.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"

namespace ebb {

class step_timer {
public:
    static constexpr uint32_t k_least_steps = 3;

    explicit step_timer(device &dev) : device_(dev) {}
    ~step_timer();
    step_timer(const step_timer &) = delete;
    step_timer &operator=(const step_timer &) = delete;

    // Forgets all: the record is another one.
    void reset(uint32_t event_count, uint32_t collective_count);

    // A step that is timed. False: the one before is not over yet, this one is not timed.
    bool begin(uint64_t step);
    // The next event's call, before anything that it enqueues.
    void point(stream_id stream);
    // The step is over, and followed the record: it counts once its points are done.
    void end();
    void drop() noexcept { timing_ = false; }

    [[nodiscard]] bool timing() const noexcept { return timing_; }
    // Where a wait of ours that is enqueued now falls.
    [[nodiscard]] uint32_t place() const noexcept { return points_; }
    void exposed(uint64_t step, uint32_t place, uint64_t time_ns);

    // How long the n-th collective of that step took.
    void collective(uint64_t step, uint32_t number, uint64_t time_ns);

    // Takes the times of the step that ended, if all of it is done. Never waits.
    status poll();
    [[nodiscard]] bool complete() const noexcept { return steps_taken_ >= k_least_steps; }
    // Work before each event; the first is not known and 0.
    [[nodiscard]] std::vector<double> work_ns() const { return lower_quartiles(taken_); }
    [[nodiscard]] std::vector<double> collective_ns() const { return lower_quartiles(collectives_); }

private:
    status read_points();
    [[nodiscard]] static std::vector<double> lower_quartiles(const std::vector<std::vector<double>> &taken);

    device &device_;
    uint32_t event_count_ = 0;
    std::vector<event_id> events_;
    std::vector<double> exposed_ns_;          // by place, of the step being timed
    std::vector<std::vector<double>> taken_;  // by event: one for each step
    std::vector<std::vector<double>> collectives_;
    uint32_t points_ = 0;
    uint32_t steps_taken_ = 0;
    uint64_t step_ = 0;
    bool timing_ = false;
    bool ended_ = false;  // and not read yet
};

}  // namespace ebb
