#include <exception>
#include <mutex>
#include <thread>

#include "host_step_device.hpp"
#include "step_runs.hpp"

namespace step {
namespace {

gpu_options gpu_options_of(const step_settings &s, const ebb_runtime_options &runtime, int64_t steps,
                           const step_shape &shape) {
    gpu_options options;
    options.runtime = runtime;
    options.runtime.host_device_bytes = 0;
    options.steps = steps;
    options.memory_cap_bytes = s.offload.device_bytes;
    options.attention = s.attention;
    options.batch = {shape.micro_batch, shape.sequence};
    options.heads = shape.heads;
    options.head_width = shape.head_width();
    return options;
}

// The first failure of several threads.
class first_failure {
public:
    void note(std::exception_ptr failure) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (failure_ == nullptr) {
            failure_ = std::move(failure);
        }
    }
    void rethrow() const {
        if (failure_ != nullptr) {
            std::rethrow_exception(failure_);
        }
    }

private:
    std::mutex mutex_;
    std::exception_ptr failure_;
};

}  // namespace

run_place::run_place(const step_settings &s) : gpus_(s.device == "cuda" ? make_gpu_group(s.gpus) : nullptr) {}

void run_place::run(const step_settings &s, const train::mode &m, const step_shape &shape, const run_one &run) {
    const train::saved_sizes saved = saved_by(shape, s.element_bytes());
    ebb_runtime_options options = train::options_of(m, s.offload, saved);
    options.max_activation_bytes = saved.largest_bytes;  // with experts, sizes change from step to step
    const int64_t steps = s.loop_of(m.name).steps;
    if (gpus_ == nullptr) {
        host_step_device device(options, steps);
        run(device, 0);
        return;
    }
    gpus_->begin_run();
    const gpu_options on_gpu = gpu_options_of(s, options, steps, shape);
    first_failure failed;
    std::vector<std::thread> others;
    const auto run_noting = [&](int64_t rank) {
        try {
            run_rank(on_gpu, rank, run);
        } catch (...) {
            failed.note(std::current_exception());
            gpus_->give_up();
        }
    };
    for (int64_t rank = 1; rank < gpus_->size(); ++rank) {
        others.emplace_back(run_noting, rank);
    }
    run_noting(0);
    for (std::thread &other : others) {
        other.join();
    }
    failed.rethrow();
}

void run_place::run_rank(const gpu_options &options, int64_t rank, const run_one &run) {
    const std::unique_ptr<step_device> device = make_gpu_device(*gpus_, rank, options);
    run(*device, rank);
}

}  // namespace step
