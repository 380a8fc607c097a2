// Placement recompute, what it is recomputed from, and the section that recomputes.

#include "capi_fixture.hpp"

namespace ebb::test {
namespace {

class recompute : public capi_test {
protected:
    ebb_offload_args recompute_args(buffer &b, const std::vector<ebb_activation> &from, const char *name = "act") {
        ebb_offload_args a = args_for(b, name);
        a.flags = EBB_OFFLOAD_CAN_RECOMPUTE;
        a.placement = EBB_PLACE_RECOMPUTE;
        a.recompute_from = from.data();
        a.recompute_from_count = from.size();
        return a;
    }
    ebb_activation offload_recompute(buffer &b, const std::vector<ebb_activation> &from, const char *name = "act") {
        return offload(recompute_args(b, from, name));
    }
};

TEST_F(recompute, the_source_goes_and_reload_says_so) {
    open();
    buffer &b = make_buffer();
    const ebb_activation a = offload_recompute(b, {});
    EXPECT_EQ(info_.placement, EBB_PLACE_RECOMPUTE);
    EXPECT_EQ(info_.reason, EBB_REASON_NONE);
    EXPECT_EQ(b.deleted, 1);
    ebb_reload_info info = zeroed<ebb_reload_info>();
    EBB_EXPECT_REFUSED(ebb_reload(runtime_, a, compute_, &info), EBB_RECOMPUTE, "recompute");
    char space[8];
    EBB_EXPECT_STATUS(ebb_reload_into(runtime_, a, space, 8, compute_), EBB_INVALID_ARGUMENT);
    std::vector<char> whole(k_size);
    EBB_EXPECT_STATUS(ebb_reload_into(runtime_, a, whole.data(), k_size, compute_), EBB_RECOMPUTE);
    EXPECT_EQ(info.claim, 0U);
    EBB_EXPECT_OK(ebb_wait(runtime_, a));
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EXPECT_EQ(stats().d2h_bytes, 0U);
    EXPECT_EQ(stats().recompute_count, 1U);
    EXPECT_EQ(b.deleted, 1);
    expect_nothing_held();
}

TEST_F(recompute, what_it_reads_lives_until_it_is_released) {
    open();
    buffer &input = make_buffer();
    buffer &output = make_buffer();
    const ebb_activation x = offload(input, "input");
    const ebb_activation y = offload_recompute(output, {x, x});  // named twice is once
    EBB_EXPECT_OK(ebb_release(runtime_, x));
    EXPECT_EQ(stats().live_activations, 2U);
    reload_and_return(x, input);
    EBB_EXPECT_REFUSED(ebb_release(runtime_, x), EBB_WRONG_STATE, "others recompute from it");
    EBB_EXPECT_OK(ebb_release(runtime_, y));
    EXPECT_EQ(stats().live_activations, 0U);
    EBB_EXPECT_STATUS(ebb_release(runtime_, x), EBB_STALE_HANDLE);
    expect_nothing_held();
}

// a <- b <- c, all of them released first to last: only c's release ends them.
TEST_F(recompute, chains_end_together) {
    open();
    const ebb_activation a = offload(make_buffer(), "a");
    const ebb_activation b = offload_recompute(make_buffer(), {a}, "b");
    const ebb_activation c = offload_recompute(make_buffer(), {b}, "c");
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EBB_EXPECT_OK(ebb_release(runtime_, b));
    EXPECT_EQ(stats().live_activations, 3U);
    EBB_EXPECT_REFUSED(ebb_runtime_close(runtime_, EBB_CLOSE_DEFAULT), EBB_BUSY, "3 activations are live");
    EBB_EXPECT_OK(ebb_drop(runtime_, c));
    EXPECT_EQ(stats().live_activations, 0U);
    for (const buffer &each : buffers_) {
        EXPECT_EQ(each.deleted, 1);
    }
    expect_nothing_held();
}

TEST_F(recompute, a_refused_offload_holds_nothing) {
    open();
    const ebb_activation a = offload(make_buffer(), "a");
    buffer &b = make_buffer();
    const std::vector<ebb_activation> from{a, ebb_activation{4711}};
    const ebb_offload_args args = recompute_args(b, from);
    EBB_EXPECT_REFUSED(ebb_offload(runtime_, &args, &info_), EBB_STALE_HANDLE, "recompute_from[1]");
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    EXPECT_EQ(b.deleted, 0);
    expect_nothing_held();
}

TEST_F(recompute, sections_do_not_nest_and_a_step_ends_one) {
    open();
    EBB_EXPECT_REFUSED(ebb_recompute_end(runtime_), EBB_WRONG_STATE, "without ebb_recompute_begin");
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    EBB_EXPECT_OK(ebb_recompute_begin(runtime_, k_size));
    EXPECT_EQ(stats().device_held_bytes, k_size);
    EBB_EXPECT_REFUSED(ebb_recompute_begin(runtime_, 0), EBB_WRONG_STATE, "do not nest");
    EBB_EXPECT_OK(ebb_recompute_end(runtime_));
    EXPECT_EQ(stats().device_held_bytes, 0U);
    EBB_EXPECT_STATUS(ebb_recompute_end(runtime_), EBB_WRONG_STATE);
    EBB_EXPECT_OK(ebb_recompute_begin(runtime_, 0));
    EBB_EXPECT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
    EBB_EXPECT_STATUS(ebb_recompute_end(runtime_), EBB_WRONG_STATE);
}

// Reloads inside a section are not compared with the record, and prefetches nobody claimed make room for it.
TEST_F(recompute, reloads_in_a_section_are_not_compared_and_prefetches_make_room) {
    options_.device_budget_bytes = 6 * k_size;
    options_.staging_bytes = 3 * k_size;
    open();
    constexpr int k_layers = 6;
    uint64_t dropped_before = 0;
    for (int step = 0; step < 3; ++step) {
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        std::vector<ebb_activation> saved;
        for (int l = 0; l < k_layers; ++l) {
            saved.push_back(offload(make_buffer(), ("layer" + std::to_string(l)).c_str()));
        }
        if (step != 0) {
            EXPECT_GT(stats().staging_used_bytes, 0U) << "prefetched";
            dropped_before = stats().prefetches_dropped;
            EBB_ASSERT_OK(ebb_recompute_begin(runtime_, 3 * k_size));
            EXPECT_EQ(stats().staging_used_bytes, 0U);
            EXPECT_GT(stats().prefetches_dropped, dropped_before);
            const ebb_reload_info info = reload(saved[0]);  // out of order
            EBB_ASSERT_OK(ebb_return(runtime_, info.claim, compute_));
            EBB_ASSERT_OK(ebb_recompute_end(runtime_));
            EXPECT_GT(stats().staging_used_bytes, 0U) << "prefetched again";
        }
        for (int l = k_layers; l-- > 0;) {
            reload_and_return(saved[static_cast<size_t>(l)], *(buffers_.end() - (k_layers - l)));
            EBB_ASSERT_OK(ebb_release(runtime_, saved[static_cast<size_t>(l)]));
        }
    }
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_EVALUATE));
    EXPECT_EQ(stats().order_mismatches, 0U);
    expect_nothing_held();
}

// Each is recomputed from the one before; all but the last were released by then.
TEST_F(recompute, a_long_chain_ends_with_its_last) {
    constexpr int k_links = 100'000;
    open();
    std::vector<ebb_activation> chain;
    for (int i = 0; i < k_links; ++i) {
        ebb_offload_args args = zeroed<ebb_offload_args>();
        args.name = "link";
        args.producers = &compute_;
        args.producer_count = 1;
        args.flags = EBB_OFFLOAD_CAN_RECOMPUTE;
        if (i != 0) {
            args.recompute_from = &chain.back();
            args.recompute_from_count = 1;
        }
        chain.push_back(offload(args));
    }
    for (const ebb_activation link : chain) {
        EBB_ASSERT_OK(ebb_release(runtime_, link));
    }
    expect_nothing_held();
}

}  // namespace
}  // namespace ebb::test
