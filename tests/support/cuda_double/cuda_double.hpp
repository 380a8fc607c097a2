// A test double of the CUDA runtime: no GPU, but CUDA's rules (rules.hpp) over threads and real copies. While one
// lives, it is this process's CUDA, through two tables: the backend's, and that of the program which uses Ebb.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda_double/call_plan.hpp"
#include "cuda_double/cuda_double_options.hpp"
#include "cuda_double/misuse_log.hpp"
#include "cuda_double/stream_work.hpp"
#include "cuda_user.hpp"
#include "device/cuda/cuda_api.hpp"

namespace ebb::test {

class double_core;

struct function_range {
    const void *data = nullptr;
    uint64_t size_bytes = 0;
    bool writes = false;
};

class cuda_double {
public:
    explicit cuda_double(const cuda_double_options &options = {});
    // Does what is enqueued.
    ~cuda_double();
    cuda_double(const cuda_double &) = delete;
    cuda_double &operator=(const cuda_double &) = delete;

    [[nodiscard]] const cuda_api &api() const { return api_; }
    [[nodiscard]] static const cuda_user &user();

    // The rules that were broken since the last call; with what the backend has left behind, if that is gone by now.
    [[nodiscard]] std::vector<misuse> take_misuses();
    [[nodiscard]] size_t take_misuses(cuda_rule rule);
    void check_all_is_given_back();

    // Faults: the backend's calls from now on, counted from 0.
    void fail_call(const planned_failure &failure);
    void fail_no_call();
    [[nodiscard]] bool failure_pending() const;                  // it has not come to that call
    [[nodiscard]] std::optional<cuda_call> failed_call() const;  // the last that was made to fail
    void break_device(cudaError_t error, int ordinal = 0);       // every call fails from now on
    void begin_exit();                                           // no call is right from now on
    void set_pinned_limit(uint64_t bytes);

    // The backend's calls so far.
    [[nodiscard]] uint64_t calls() const;
    [[nodiscard]] uint64_t calls(cuda_call which) const;

    // A kernel of the program's that is any function, on memory that it names: on a real GPU there is none such.
    cudaError_t launch_function(cudaStream_t stream, std::function<void()> run, work_kind kind = work_kind::may_stand,
                                const std::vector<function_range> &ranges = {});
    // Everything that is enqueued has run.
    void finish();

private:
    std::unique_ptr<double_core> core_;
    cuda_api api_;
};

// That of this process, which must live.
[[nodiscard]] double_core &current_cuda_double();
void set_current_cuda_double(double_core *core);
[[nodiscard]] cuda_api double_cuda_api(const cuda_double_options &options);

}  // namespace ebb::test
