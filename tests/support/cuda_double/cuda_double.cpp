#include "cuda_double/cuda_double.hpp"

#include <atomic>

#include "base/check.hpp"
#include "cuda_double/double_core.hpp"

namespace ebb::test {
namespace {

std::atomic<double_core *> current{nullptr};

}  // namespace

double_core &current_cuda_double() {
    double_core *core = current.load(std::memory_order_acquire);
    EBB_CHECK(core != nullptr);
    return *core;
}

void set_current_cuda_double(double_core *core) {
    EBB_CHECK(core == nullptr || current.load() == nullptr);
    current.store(core, std::memory_order_release);
}

cuda_double::cuda_double(const cuda_double_options &options)
    : core_(std::make_unique<double_core>(options)), api_(double_cuda_api(options)) {
    set_current_cuda_double(core_.get());
}

cuda_double::~cuda_double() {
    core_.reset();
    set_current_cuda_double(nullptr);
}

std::vector<misuse> cuda_double::take_misuses() {
    return core_->misuses().take_all();
}

size_t cuda_double::take_misuses(cuda_rule rule) {
    return core_->misuses().take(rule);
}

void cuda_double::check_all_is_given_back() {
    core_->check_all_is_given_back();
}

void cuda_double::fail_call(const planned_failure &failure) {
    const auto lock = core_->locked();
    core_->plan().set(failure);
}

void cuda_double::fail_no_call() {
    const auto lock = core_->locked();
    core_->plan().clear();
}

bool cuda_double::failure_pending() const {
    const auto lock = core_->locked();
    return core_->plan().pending();
}

std::optional<cuda_call> cuda_double::failed_call() const {
    const auto lock = core_->locked();
    return core_->plan().last_hit();
}

void cuda_double::break_device(cudaError_t error, int ordinal) {
    core_->break_device(ordinal, error);
}

void cuda_double::begin_exit() {
    const auto lock = core_->locked();
    core_->begin_exit();
}

void cuda_double::set_pinned_limit(uint64_t bytes) {
    core_->set_pinned_limit(bytes);
}

uint64_t cuda_double::calls() const {
    const auto lock = core_->locked();
    return core_->plan().count();
}

uint64_t cuda_double::calls(cuda_call which) const {
    const auto lock = core_->locked();
    return core_->plan().count(which);
}

cudaError_t cuda_double::launch_function(cudaStream_t stream, std::function<void()> run, work_kind kind,
                                         const std::vector<function_range> &ranges) {
    std::vector<double_core::kernel_range> used;
    for (const function_range &range : ranges) {
        used.push_back({range.data, range.size_bytes, range.writes});
    }
    return core_->call_of_user("launch_function", [&](double_core::call &c) {
        return core_->launch(c, stream, "a function", used, std::move(run), kind);
    });
}

void cuda_double::finish() {
    core_->finish();
}

}  // namespace ebb::test
