// What the prefetch window does when a step does not go as its record says: every use that could have been prefetched
// is.

#include "capi_fixture.hpp"

namespace ebb::test {
namespace {

class prefetch_window : public capi_test {
protected:
    void train() { EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN)); }
    void use(ebb_activation a, const buffer &b) { reload_and_return(a, b); }
    void release(ebb_activation a) { EBB_EXPECT_OK(ebb_release(runtime_, a)); }
};

TEST_F(prefetch_window, a_dropped_prefetch_comes_again_for_all_uses_that_are_left) {
    options_.device_budget_bytes = 4 * k_size;
    options_.staging_bytes = 2 * k_size;
    open();
    for (int step = 0; step < 3; ++step) {
        train();
        const uint64_t on_demand = stats().reloads_on_demand;
        buffer &b = make_buffer();
        const ebb_activation a = offload(b);
        if (step != 0) {
            EBB_ASSERT_OK(ebb_recompute_begin(runtime_, 2 * k_size));
            EXPECT_EQ(stats().staging_used_bytes, 0U) << "dropped";
            EBB_ASSERT_OK(ebb_recompute_end(runtime_));
        }
        use(a, b);
        use(a, b);
        use(a, b);
        if (step != 0) {
            EXPECT_EQ(stats().reloads_on_demand, on_demand);
        }
        release(a);
    }
}

// The window has passed both as what will be forwarded; something that no record knew needs the room.
TEST_F(prefetch_window, what_is_given_up_against_the_forecast_is_prefetched) {
    options_.source_bytes = k_automatic;
    options_.staging_bytes = 2 * k_size;
    options_.device_budget_bytes = 5 * k_size;
    options_.max_activation_bytes = 2 * k_size - 1024;
    open();
    for (int step = 0; step < 3; ++step) {
        train();
        buffer &first = make_buffer();
        buffer &second = make_buffer();
        const ebb_activation a = offload(first, "first");
        const ebb_activation b = offload(second, "second");
        const ebb_statistics before = stats();
        ebb_activation unknown = 0;
        if (step == 2) {
            unknown = offload(make_buffer(2 * k_size - 1024), "unknown");
            EXPECT_LT(stats().source_bytes, 4 * k_size) << "somebody had to go";
        }
        use(b, second);
        use(a, first);
        if (step == 2) {
            EXPECT_EQ(stats().reloads_on_demand, before.reloads_on_demand);
            EXPECT_GT(stats().reloads_prefetched, before.reloads_prefetched);
            release(unknown);
        }
        release(b);
        release(a);
    }
}

TEST_F(prefetch_window, the_use_of_one_from_the_step_before_is_no_mismatch) {
    options_.device_budget_bytes = 6 * k_size;
    options_.staging_bytes = 2 * k_size;
    open();
    buffer *kept_buffer = nullptr;
    ebb_activation kept = 0;
    for (int step = 0; step < 4; ++step) {
        train();
        if (kept != 0) {
            use(kept, *kept_buffer);
            release(kept);
        }
        buffer &carried = make_buffer();
        buffer &usual = make_buffer();
        kept = offload(carried, "carried");
        kept_buffer = &carried;
        const ebb_activation a = offload(usual, "usual");
        use(a, usual);
        release(a);
    }
    train();
    EXPECT_EQ(stats().order_mismatches, 0U);
    release(kept);
}

// What was read where it lies, and is not expected again, makes room for the next.
TEST_F(prefetch_window, a_slot_that_was_read_into_own_memory_is_free_afterwards) {
    options_.device_budget_bytes = 4 * k_size;
    options_.staging_bytes = k_size + 1024;
    open();
    void *own = nullptr;
    EBB_ASSERT_OK(ebb_host_alloc(runtime_, k_size, &own));
    for (int step = 0; step < 3; ++step) {
        train();
        const ebb_statistics before = stats();
        buffer &first = make_buffer();
        buffer &second = make_buffer();
        const ebb_activation a = offload(first, "first");
        const ebb_activation b = offload(second, "second");
        EBB_ASSERT_OK(ebb_reload_into(runtime_, b, own, k_size, compute_));
        use(a, first);
        if (step != 0) {
            EXPECT_EQ(stats().reloads_on_demand, before.reloads_on_demand);
            EXPECT_EQ(stats().prefetches_dropped, before.prefetches_dropped);
        }
        release(b);
        release(a);
    }
}

TEST_F(prefetch_window, staging_holds_the_largest_that_was_promised) {
    options_.max_activation_bytes = 4 * k_size;
    open();
    for (int step = 0; step < 2; ++step) {
        train();
        buffer &b = make_buffer();
        const ebb_activation a = offload(b);
        use(a, b);
        release(a);
    }
    train();
    const ebb_activation large = offload(make_buffer(4 * k_size), "large");
    EXPECT_EQ(info_.placement, EBB_PLACE_OFFLOAD) << "reason " << info_.reason;
    release(large);
}

TEST_F(prefetch_window, evaluation_keeps_what_fits) {
    options_.max_activation_bytes = k_size;
    options_.staging_bytes = k_size + 512;
    options_.device_budget_bytes = options_.staging_bytes + 3 * k_size;
    open();
    release(offload(make_buffer()));
    EXPECT_EQ(info_.placement, EBB_PLACE_OFFLOAD) << "no step says that this is evaluation";
    EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_EVALUATE));
    std::vector<ebb_activation> saved;
    for (int i = 0; i < 4; ++i) {
        saved.push_back(offload(make_buffer()));
        EXPECT_EQ(info_.placement, i < 3 ? EBB_PLACE_KEEP : EBB_PLACE_OFFLOAD) << i;
        EXPECT_EQ(info_.reason, i < 3 ? EBB_REASON_EVALUATION : EBB_REASON_NONE) << i;
    }
    EXPECT_LE(stats().device_peak_bytes, options_.device_budget_bytes + k_size) << "but for what is being offloaded";
    for (const ebb_activation a : saved) {
        release(a);
    }
    train();
    release(offload(make_buffer()));
    EXPECT_EQ(info_.placement, EBB_PLACE_OFFLOAD);
}

}  // namespace
}  // namespace ebb::test
