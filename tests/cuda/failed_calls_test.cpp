// Every CUDA call may fail. The first, the second, the third call that the backend makes does, until a small training
// run through the C ABI makes no more of them: once alone, or so that the device is lost from then on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>

#include "fault/stubborn_run.hpp"

namespace ebb::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr uint64_t k_most_calls = 20000;  // far more than a run makes

checked_cuda &cuda_of(rig_device &dev) {
    return static_cast<cuda_machine &>(dev.machine()).cuda();
}

struct outcome {
    bool reached = false;
    std::optional<cuda_call> call;
    int lost = 0;
    std::vector<std::string> failures;
};

outcome run_with(const runtime_options &core, const planned_failure &failure) {
    outcome out;
    const stubborn_run run(
        core, true,
        [&](rig_device &dev) {
            static_cast<cuda_machine &>(dev.machine()).bear_loss();
            cuda_of(dev).fail_call(failure);
        },
        [&](rig_device &gone) {
            out.reached = !cuda_of(gone).failure_pending();
            out.call = cuda_of(gone).failed_call();
            if (out.call == cuda_call::pop_device) {
                // Nobody can pop it then.
                static_cast<void>(cuda_of(gone).take_misuses(cuda_rule::current_device_is_left_alone));
            }
        });
    out.lost = run.lost();
    out.failures = run.failures();
    return out;
}

// With one of the sets of options. Each of the three tries another third of the calls: of the many that are alike, each
// is hit.
class failed_cuda_calls : public ::testing::TestWithParam<size_t> {
protected:
    static constexpr uint64_t k_stride = 3;

    failed_cuda_calls() { current_machine_kind = machine_kind::cuda; }
    ~failed_cuda_calls() override { current_machine_kind = machine_kind::host; }

    void for_every_nth(cudaError_t error, bool loses_the_device, const std::function<void(const outcome &)> &look) {
        const runtime_options core = option_sets()[GetParam()].core;
        uint64_t nth = GetParam();
        for (; nth < k_most_calls && !HasFailure(); nth += k_stride) {
            SCOPED_TRACE("call " + std::to_string(nth));
            const outcome out = run_with(core, {nth, std::nullopt, error, loses_the_device});
            if (!out.reached) {
                break;
            }
            SCOPED_TRACE(name_of(*out.call));
            look(out);
        }
        EXPECT_LT(nth, k_most_calls);
        EXPECT_GT(nth, 1000U);
    }
};

TEST_P(failed_cuda_calls, the_nth_alone) {
    for_every_nth(cudaErrorUnknown, false, [&](const outcome &out) {
        EXPECT_EQ(out.lost, 0) << "one failure costs nobody an activation";
        for (const std::string &failure : out.failures) {
            // Of memory, what was wanted counts.
            EXPECT_THAT(failure, AnyOf(AllOf(HasSubstr("cudaErrorUnknown"), ContainsRegex("cu(da|Ctx)[A-Z]")),
                                       HasSubstr("bytes wanted")));
            // Memory that is given back is nobody's any more, and of all streams is waited for all activations.
            const bool for_one = *out.call == cuda_call::memcpy_async || *out.call == cuda_call::event_record ||
                                 *out.call == cuda_call::stream_wait_event;
            EXPECT_TRUE(!for_one || failure.find(" of '") != std::string::npos ||
                        failure.find("back: ") != std::string::npos || failure.find(" for '") != std::string::npos)
                << "of which activation? " << failure;
        }
    });
}

// Not each failure is anybody's to hear of, but some of each kind are. Which those are, the threads' order decides.
TEST_P(failed_cuda_calls, of_each_kind_one_is_told) {
    const runtime_options core = option_sets()[GetParam()].core;
    for (const cuda_call only : {cuda_call::memcpy_async, cuda_call::event_record, cuda_call::stream_wait_event,
                                 cuda_call::event_create_with_flags, cuda_call::event_query}) {
        SCOPED_TRACE(name_of(only));
        bool told = false;
        for (uint64_t nth = 0; !told; ++nth) {
            const outcome out = run_with(core, {nth, only, cudaErrorUnknown, false});
            told = !out.failures.empty();
            ASSERT_TRUE(out.reached || told) << "after " << nth;
        }
    }
}

TEST_P(failed_cuda_calls, the_nth_loses_the_device) {
    for_every_nth(cudaErrorIllegalAddress, true, [](const outcome &out) {
        if (!out.failures.empty()) {
            EXPECT_THAT(out.failures.front(), AnyOf(HasSubstr("cudaErrorIllegalAddress"), HasSubstr("bytes wanted")));
        }
    });
}

// What is out of memory is not lost, and never wrong.
TEST_P(failed_cuda_calls, the_nth_is_out_of_memory) {
    const runtime_options core = option_sets()[GetParam()].core;
    for (const cuda_call only : {cuda_call::malloc, cuda_call::host_register, cuda_call::event_create_with_flags}) {
        for (uint64_t nth = 0; nth < k_most_calls && !HasFailure(); ++nth) {
            SCOPED_TRACE(std::string(name_of(only)) + " " + std::to_string(nth));
            const outcome out = run_with(core, {nth, only, cudaErrorMemoryAllocation, false});
            if (!out.reached) {
                EXPECT_GT(nth, 0U);
                break;
            }
            EXPECT_EQ(out.lost, 0);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(cuda, failed_cuda_calls, ::testing::Range(size_t{0}, option_sets().size()),
                         [](const auto &at) { return std::string(option_sets()[at.param].name); });

}  // namespace
}  // namespace ebb::test
