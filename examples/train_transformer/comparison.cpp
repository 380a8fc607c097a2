#include "comparison.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "modes.hpp"
#include "trainer.hpp"

namespace train {
namespace {

// One line that is written over, and only where somebody watches.
class progress_line {
public:
    void show(const std::string &text) {
        if (on_) {
            fmt::print(stderr, "\r\x1b[K{}", text);
            std::fflush(stderr);
        }
    }
    ~progress_line() { show(""); }

private:
    const bool on_ = isatty(STDERR_FILENO) != 0;
};

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

void take_peaks(const training_device &device, mode_result &result) {
    check(ebb_host_memory(device.runtime(), nullptr, nullptr, &result.device_peak_bytes), "ebb_host_memory");
    ebb_statistics statistics{};
    statistics.struct_size = sizeof(statistics);
    check(ebb_stats(device.runtime(), &statistics), "ebb_stats");
    result.pinned_peak_bytes = statistics.pinned_peak_bytes;
}

void take_times(const trainer &run, const settings &s, mode_result &result) {
    const double seconds = median(run.step_seconds());
    result.step_ms = seconds * 1e3;
    result.tokens_per_s = static_cast<double>(s.shape.tokens() * s.accumulation) / seconds;
    const uint64_t sampled = run.after().sampled_steps - run.before().sampled_steps;
    result.hidden_ms = growth_ms(run.before().hidden_ns, run.after().hidden_ns, sampled);
    result.exposed_ms = growth_ms(run.before().exposed_ns, run.after().exposed_ns, sampled);
    result.kept_by_necessity = run.kept_by_necessity() / s.steps;
    result.losses = run.log().losses;
}

void train_once(const settings &s, const text_data &text, training_device &device, mode_result &result) {
    progress_line line;
    line.show(fmt::format("{}, micro batch {}: starting", result.mode, result.micro_batch));
    trainer run(device, s, text);
    run.run([&](int64_t finished, double loss) {
        line.show(finished == 0
                      ? fmt::format("{}, micro batch {}: step 1 of {}", result.mode, result.micro_batch, s.steps)
                      : fmt::format("{}, micro batch {}: {} of {} steps, loss {:.4f}", result.mode, result.micro_batch,
                                    finished, s.steps, loss));
    });
    take_times(run, s, result);
}

mode_result run_mode(const mode &m, const settings &s, const text_data &text) {
    mode_result result;
    result.mode = m.name;
    result.micro_batch = s.shape.micro_batch;
    training_device device(options_of(m, s));
    try {
        train_once(s, text, device, result);
    } catch (const call_failed &failure) {
        if (failure.status() != EBB_OUT_OF_DEVICE_MEMORY) {
            throw;
        }
        result.out_of_memory = true;
        result.why = failure.what();
    }
    take_peaks(device, result);
    return result;
}

}  // namespace

void run_all(const settings &s, const text_data &text, std::vector<mode_result> &results) {
    for (const std::string &name : s.modes) {
        results.push_back(run_mode(find_mode(name), s, text));
    }
    if (s.large_micro_batch != 0) {
        settings large = s;
        large.shape.micro_batch = s.large_micro_batch;
        for (const char *name : {"keep", "offload-auto"}) {
            results.push_back(run_mode(find_mode(name), large, text));
        }
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
            // Bit for bit: no loss is a NaN or a negative zero that == would treat otherwise, unless training diverged.
            const auto [x, y] = std::mismatch(a.losses.begin(), a.losses.end(), b.losses.begin());
            if (x != a.losses.end()) {
                return fmt::format("the loss of step {} is {:a} in mode {} and {:a} in mode {} at micro batch {}",
                                   x - a.losses.begin() + 1, *x, a.mode, *y, b.mode, a.micro_batch);
            }
        }
    }
    return {};
}

}  // namespace train
