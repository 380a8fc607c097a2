#include "cuda_double/double_core.hpp"

#include <fmt/core.h>

#include <utility>

namespace ebb::test {
namespace {

std::atomic<uint64_t> next_core{1};
std::atomic<uint64_t> next_thread{1};
thread_local cuda_thread current_thread;

// Those that answer also where the context has failed, or there is none.
bool needs_context(cuda_call which) {
    switch (which) {
        case cuda_call::driver_get_version:
        case cuda_call::runtime_get_version:
        case cuda_call::get_device_count:
        case cuda_call::push_device:
        case cuda_call::pop_device:
        case cuda_call::device_in_use:
        case cuda_call::has_context:
        case cuda_call::device_get_attribute:
        case cuda_call::device_get_name:
        case cuda_call::device_get_pci_bus_id:
        case cuda_call::thread_exchange_stream_capture_mode:
            return false;
        default:
            return true;
    }
}

}  // namespace

double_core::double_core(const cuda_double_options &options)
    : options_(options),
      number_(next_core++),
      pinned_limit_bytes_(options.pinned_limit_bytes),
      engines_{copy_engine(options.d2h_bytes_per_second), copy_engine(options.h2d_bytes_per_second), {}},
      random_(options.seed) {
    for (int i = 0; i < options.devices; ++i) {
        devices_.emplace_back();
    }
}

double_core::~double_core() {
    for (const auto &[number, stream] : streams_) {
        stream->thread->finish();
    }
}

void double_core::finish() {
    const std::unique_lock lock(mutex_);
    for (const auto &[number, stream] : streams_) {
        (void)stream->thread->synchronize(stream->id());
        known_.merge(stream->behind);
    }
}

cuda_thread &double_core::this_thread() const {
    if (current_thread.core != number_) {
        const uint64_t number = current_thread.number != 0 ? current_thread.number : next_thread++;
        current_thread = {};
        current_thread.core = number_;
        current_thread.number = number;
    }
    return current_thread;
}

std::optional<cudaError_t> double_core::before_backend_call(call &c, cuda_call which) {
    const std::optional<planned_failure> planned = plan_.next(which);
    if (planned && planned->breaks_the_device) {
        device(c.thread.current()).life.end(planned->error);
    }
    if (std::optional<cudaError_t> refused = before_call(c, needs_context(which))) {
        return refused;
    }
    return planned ? std::optional(planned->error) : std::nullopt;
}

std::optional<cudaError_t> double_core::before_call(call &c, bool context) {
    if (exiting_) {
        return misused(c, cuda_rule::no_call_after_exit_began, "the process is ending", cudaErrorCudartUnloading);
    }
    if (!context) {
        return std::nullopt;
    }
    if (const cudaError_t error = driver_error(); error != cudaSuccess) {
        return error;
    }
    double_device &used = device(c.thread.current());
    if (c.caller == cuda_caller::backend && !used.in_use) {
        (void)misused(c, cuda_rule::no_context_comes_to_life,
                      fmt::format("device {} is current, and nobody uses it", c.thread.current()), cudaSuccess);
    }
    used.in_use = true;
    c.thread.bound = c.thread.bound || c.thread.pushed.empty();
    const cudaError_t broken = used.life.error();
    return broken != cudaSuccess ? std::optional(broken) : std::nullopt;
}

cudaError_t double_core::note_error(call &c, cudaError_t error) {
    if (error != cudaSuccess) {
        c.thread.last_error = error;
    }
    return error;
}

cudaError_t double_core::take_last_error(bool clear) {
    const std::unique_lock lock(mutex_);
    cuda_thread &thread = this_thread();
    if (exiting_) {
        misuses_.add(cuda_rule::no_call_after_exit_began, "get_last_error: the process is ending");
        return cudaErrorCudartUnloading;
    }
    if (driver_error() == cudaSuccess) {
        if (const cudaError_t broken = device(thread.current()).life.error(); broken != cudaSuccess) {
            return broken;
        }
    }
    return clear ? std::exchange(thread.last_error, cudaSuccess) : thread.last_error;
}

cudaError_t double_core::misused(const call &c, cuda_rule rule, const std::string &text, cudaError_t error) {
    misuses_.add(rule, fmt::format("{}{}: {}", c.caller == cuda_caller::user ? "the user's " : "", c.name, text));
    return error;
}

void double_core::break_device(int ordinal, cudaError_t error) {
    const std::unique_lock lock(mutex_);
    device(ordinal).life.end(error);
}

void double_core::set_pinned_limit(uint64_t bytes) {
    const std::unique_lock lock(mutex_);
    pinned_limit_bytes_ = bytes;
}

void double_core::check_all_is_given_back() {
    const std::unique_lock lock(mutex_);
    for (const double_device &each : devices_) {
        if (each.life.error() != cudaSuccess) {
            return;
        }
    }
    if (plan_.kept_something()) {
        return;
    }
    const auto left = [&](const std::string &what) { misuses_.add(cuda_rule::all_is_given_back, what); };
    for (const auto &[handle, stream] : stream_handles_) {
        if (stream->owner == cuda_caller::backend) {
            left(fmt::format("stream {} is left", stream->number));
        }
    }
    for (const auto &[handle, event] : events_) {
        if (event.owner == cuda_caller::backend) {
            left(fmt::format("event {} is left", static_cast<const void *>(handle)));
        }
    }
    for (const auto &[first, block] : memory_.blocks()) {
        if (block.owner == cuda_caller::backend) {
            left(fmt::format("{} bytes of {} memory are left", block.size_bytes,
                             block.place == memory_place::device ? "device"
                             : block.registered                  ? "registered"
                                                                 : "pinned"));
        }
    }
}

}  // namespace ebb::test
