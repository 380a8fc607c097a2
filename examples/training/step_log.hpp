// What the compute stream reports back: the loss of each finished step and when it finished. The training loop
// waits here, and only here, so that it never runs more than one step ahead.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace train {

class step_log {
public:
    using clock = std::chrono::steady_clock;

    explicit step_log(int64_t steps) : losses(static_cast<size_t>(steps)), finished_at_(losses.size()) {}

    // On the compute stream, as the last function of a step.
    void finish_step() {
        const std::lock_guard<std::mutex> lock(mutex_);
        finished_at_[static_cast<size_t>(finished_++)] = clock::now();
        changed_.notify_all();
    }
    void wait_for(int64_t steps) {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return finished_ >= steps; });
    }
    // Only for steps that wait_for has seen.
    [[nodiscard]] clock::time_point finished_at(int64_t step) const { return finished_at_[static_cast<size_t>(step)]; }

    std::vector<double> losses;  // kernels add to the running step's

private:
    std::vector<clock::time_point> finished_at_;
    int64_t finished_ = 0;
    std::mutex mutex_;
    std::condition_variable changed_;
};

}  // namespace train
