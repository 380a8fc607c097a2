// How many CUDA calls an activation costs, once a program is warm.

#include <gtest/gtest.h>

#include <array>

#include "cuda_loop.hpp"

namespace ebb::test {
namespace {

constexpr int k_layers = 10;

class call_counts {
public:
    explicit call_counts(const cuda_double &cuda) : cuda_(cuda) { start(); }
    void start() {
        for (size_t i = 0; i < k_cuda_call_count; ++i) {
            before_[i] = cuda_.calls(static_cast<cuda_call>(i));
        }
    }
    [[nodiscard]] uint64_t of(cuda_call which) const {
        return cuda_.calls(which) - before_[static_cast<size_t>(which)];
    }
    [[nodiscard]] uint64_t enqueued() const {
        return of(cuda_call::memcpy_async) + of(cuda_call::memcpy_batch_async) + of(cuda_call::event_record) +
               of(cuda_call::stream_wait_event) + of(cuda_call::launch_checksum);
    }
    [[nodiscard]] std::string text() const {
        std::string all;
        for (size_t i = 0; i < k_cuda_call_count; ++i) {
            const auto which = static_cast<cuda_call>(i);
            if (of(which) != 0) {
                all += std::string(name_of(which)) + " " + std::to_string(of(which)) + "  ";
            }
        }
        return all;
    }

private:
    const cuda_double &cuda_;
    std::array<uint64_t, k_cuda_call_count> before_{};
};

struct counted {
    const char *name;
    uint64_t size_bytes;
    uint64_t chunk_bytes;
    uint64_t chunks;
};

class call_count : public ::testing::TestWithParam<counted> {
protected:
    // Enqueued by a step, of all that makes copies go out and come back.
    uint64_t enqueued_by_a_step(bool device_keeps_up) {
        const counted &c = GetParam();
        checked_cuda cuda;
        cuda_loop loop(cuda, loop_options(c.size_bytes, c.chunk_bytes));
        const auto step = [&] {
            loop.train(k_layers, c.size_bytes);
            if (device_keeps_up) {
                loop.ok(loop.user().device_synchronize());
            }
        };
        for (int i = 0; i < 6; ++i) {
            step();
        }
        const call_counts counts(cuda);
        step();
        EXPECT_EQ(counts.of(cuda_call::memcpy_async), 2 * k_layers * c.chunks) << counts.text();
        // Asking whether a stream is in a capture is apart: once in a call that names one.
        EXPECT_LE(counts.of(cuda_call::stream_get_capture_info), 3 * k_layers) << counts.text();
        if (device_keeps_up) {
            EXPECT_EQ(counts.of(cuda_call::event_create_with_flags), 0U) << counts.text();
            // One look at each direction's oldest, and one that finds nothing, in a step.
            EXPECT_LE(counts.of(cuda_call::event_query), 12U) << counts.text();
        }
        RecordProperty("calls", counts.text());
        return counts.enqueued();
    }
};

// The copies; the record behind the producer, or the last use, and the lane's wait for it; the record behind the copy,
// and the wait for that.
TEST_P(call_count, per_direction_is_one_per_chunk_and_at_most_four) {
    EXPECT_LE(enqueued_by_a_step(true), 2 * k_layers * (GetParam().chunks + 4));
}

// Nor more where the host runs so far ahead that nothing is over: the lane need not wait for the last reader of a block
// that is used again, since the producer's stream did.
TEST_P(call_count, is_the_same_where_the_host_runs_ahead) {
    EXPECT_LE(enqueued_by_a_step(false), 2 * k_layers * (GetParam().chunks + 4));
}

INSTANTIATE_TEST_SUITE_P(cuda, call_count,
                         ::testing::Values(counted{"one_chunk", 64 * 1024, 0, 1},
                                           counted{"two_chunks", 4 << 20U, 2 << 20U, 2},
                                           counted{"eight_small_chunks", 256 * 1024, 32 * 1024, 8}),
                         [](const auto &at) { return std::string(at.param.name); });

}  // namespace
}  // namespace ebb::test
