#include "comparison.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "ebb_call.hpp"

namespace train {
namespace {

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const size_t n = values.size();
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// A counter's growth per sampled step. What was hidden is transfer time less exposed time, which can shrink a little
// where nearly all is exposed.
double growth_ms(uint64_t before_ns, uint64_t after_ns, uint64_t steps) {
    return steps == 0 || after_ns < before_ns
               ? 0.0
               : static_cast<double>(after_ns - before_ns) * 1e-6 / static_cast<double>(steps);
}

// Of the steps that both ran, the first whose losses differ; -1: none. Bit for bit: no loss is a NaN or a negative zero
// that == would treat otherwise, unless training diverged.
int64_t first_difference(const mode_result &a, const mode_result &b) {
    for (size_t i = 0; i < std::min(a.losses.size(), b.losses.size()); ++i) {
        if (a.losses[i] != b.losses[i]) {
            return static_cast<int64_t>(i);
        }
    }
    return -1;
}

}  // namespace

progress_line::progress_line(const mode_result &of)
    : run_(fmt::format("{}, micro batch {}: ", of.mode, of.micro_batch)), on_(isatty(STDERR_FILENO) != 0) {
    show(run_ + "starting");
}

void progress_line::show(const std::string &text) {
    if (on_) {
        fmt::print(stderr, "\r\x1b[K{}", text);
        std::fflush(stderr);
    }
}

progress progress_line::of_steps(int64_t steps) {
    return [this, steps](int64_t finished, double loss) {
        show(run_ + (finished == 0 ? fmt::format("step 1 of {}", steps)
                                   : fmt::format("{} of {} steps, loss {:.4f}", finished, steps, loss)));
    };
}

void run_modes(const run_settings &s, const run_one &run, std::vector<mode_result> &results) {
    for (const std::string &name : s.modes) {
        results.push_back(run(find_mode(name), s.shape.micro_batch));
    }
    if (s.large_micro_batch != 0) {
        for (const char *name : {"keep", "offload-auto"}) {
            results.push_back(run(find_mode(name), s.large_micro_batch));
        }
    }
}

void take_times(const loop_result &run, int64_t tokens_per_step, mode_result &result) {
    const double seconds = median(run.step_seconds);
    result.step_ms = seconds * 1e3;
    result.tokens_per_s = static_cast<double>(tokens_per_step) / seconds;
    const uint64_t sampled = run.after.sampled_steps - run.before.sampled_steps;
    result.hidden_ms = growth_ms(run.before.hidden_ns, run.after.hidden_ns, sampled);
    result.exposed_ms = growth_ms(run.before.exposed_ns, run.after.exposed_ns, sampled);
    result.losses = run.losses;
}

void run_or_note_why(const std::function<void()> &train, mode_result &result) {
    try {
        train();
    } catch (const call_failed &failure) {
        if (failure.status() != EBB_OUT_OF_DEVICE_MEMORY) {
            throw;
        }
        result.out_of_memory = true;
        result.why = failure.what();
    }
}

std::string difference(const std::vector<mode_result> &results) {
    for (size_t i = 0; i < results.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
            const mode_result &a = results[j];
            const mode_result &b = results[i];
            if (a.out_of_memory || b.out_of_memory || a.micro_batch != b.micro_batch) {
                continue;
            }
            if (const int64_t step = first_difference(a, b); step >= 0) {
                const auto at = static_cast<size_t>(step);
                return fmt::format("the loss of step {} is {:a} in mode {} and {:a} in mode {} at micro batch {}",
                                   step + 1, a.losses[at], a.mode, b.losses[at], b.mode, a.micro_batch);
            }
        }
    }
    return {};
}

}  // namespace train
