#include "device/cuda/link_rates.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "fake_cuda.hpp"
#include "fake_system.hpp"

namespace ebb {
namespace {

constexpr uint64_t k_mib = 1ULL << 20U;
constexpr uint64_t k_giga = 1'000'000'000;

TEST(link_rates, a_chunk_is_half_a_millisecond_between_4_and_64_mib) {
    EXPECT_EQ(chunk_bytes_at(0), 4 * k_mib);
    EXPECT_EQ(chunk_bytes_at(2 * k_giga), 4 * k_mib);
    EXPECT_EQ(chunk_bytes_at(25 * k_giga), 11 * k_mib);  // 12.5 MB
    EXPECT_EQ(chunk_bytes_at(52 * k_giga), 24 * k_mib);  // 26 MB
    EXPECT_EQ(chunk_bytes_at(193 * k_giga), 64 * k_mib);
    EXPECT_EQ(chunk_bytes_at(~uint64_t{0}), 64 * k_mib);
}

TEST(link_rates, what_is_usual_depends_on_the_machine) {
    EXPECT_EQ(usual_bytes_per_second(false, 8), 25 * k_giga);
    EXPECT_EQ(usual_bytes_per_second(false, 9), 52 * k_giga);
    EXPECT_EQ(usual_bytes_per_second(true, 9), 297 * k_giga);
    EXPECT_EQ(usual_bytes_per_second(true, 10), 193 * k_giga);
}

class measured_link : public ::testing::Test {
protected:
    measured_link() {
        options_.system_root = system_.root();
        options_.buffer_bytes = 4 * k_mib;
        forget_measured_link_rates();
    }
    ~measured_link() override { forget_measured_link_rates(); }

    fake_cuda cuda_;
    fake_system system_;
    measuring_options options_;
};

TEST_F(measured_link, rates_are_bytes_over_time_measured_once) {
    cuda_.elapsed_milliseconds = 0.5F;  // for 8 copies of 1 MiB
    const result<link_rates> rates = measured_link_rates(cuda_.api, 0, options_);
    ASSERT_TRUE(rates.ok()) << rates.why().text();
    EXPECT_EQ(rates.value().d2h_bytes_per_second, 16000 * k_mib);
    EXPECT_EQ(rates.value().h2d_bytes_per_second, 16000 * k_mib);
    EXPECT_EQ(rates.value().d2h_beside_h2d_bytes_per_second, 16000 * k_mib);
    EXPECT_EQ(rates.value().h2d_beside_d2h_bytes_per_second, 16000 * k_mib);
    for (const auto &[taken, given] : {std::pair{"malloc", "free"},
                                       {"host_register", "host_unregister"},
                                       {"stream_create_with_flags", "stream_destroy"},
                                       {"event_create_with_flags", "event_destroy"}}) {
        EXPECT_GT(cuda_.calls[taken], 0) << taken;
        EXPECT_EQ(cuda_.calls[taken], cuda_.calls[given]) << taken;
    }
    EXPECT_TRUE(cuda_.pushed.empty());
    const int calls = cuda_.all_calls;
    cuda_.elapsed_milliseconds = 5;
    EXPECT_EQ(measured_link_rates(cuda_.api, 0, options_).value().d2h_bytes_per_second, 16000 * k_mib);
    EXPECT_EQ(cuda_.all_calls, calls) << "known for the process";
    forget_measured_link_rates();
    EXPECT_EQ(measured_link_rates(cuda_.api, 0, options_).value().d2h_bytes_per_second, 1600 * k_mib);
}

TEST_F(measured_link, all_gpus_of_the_process_copy_at_once) {
    cuda_.devices = 4;
    cuda_.in_use = {{0, 1}, {3, 1}};
    ASSERT_TRUE(measured_link_rates(cuda_.api, 1, options_).ok());
    for (const int ordinal : {0, 1, 3}) {
        EXPECT_GT(std::count(cuda_.copies_on.begin(), cuda_.copies_on.end(), ordinal), 0) << ordinal;
    }
    EXPECT_EQ(std::count(cuda_.copies_on.begin(), cuda_.copies_on.end(), 2), 0) << "no process of ours uses it";
    // Side by side, not one after the other.
    EXPECT_EQ((std::vector<int>{cuda_.copies_on.begin(), cuda_.copies_on.begin() + 6}),
              (std::vector<int>{0, 1, 3, 0, 1, 3}));
    const int calls = cuda_.all_calls;
    EXPECT_TRUE(measured_link_rates(cuda_.api, 3, options_).ok());
    EXPECT_EQ(cuda_.all_calls, calls) << "measured along with the first";
}

TEST_F(measured_link, what_fails_is_a_failure_and_leaves_nothing_behind) {
    cuda_.failures["memcpy_async"] = cudaErrorInvalidValue;
    EXPECT_FALSE(measured_link_rates(cuda_.api, 0, options_).ok());
    EXPECT_EQ(cuda_.calls["malloc"], cuda_.calls["free"]);
    EXPECT_EQ(cuda_.calls["host_register"], cuda_.calls["host_unregister"]);
    cuda_.failures.clear();
    EXPECT_TRUE(measured_link_rates(cuda_.api, 0, options_).ok()) << "a failure is not remembered";
}

}  // namespace
}  // namespace ebb
