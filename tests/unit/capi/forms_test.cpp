// The staged form, reload into the caller's memory in every state, and copies that are shared by storage key.

#include <cstring>

#include "capi_fixture.hpp"
#include "stream_order.hpp"

namespace ebb::test {
namespace {

// ---------------------------------------------------------------------------------------------------- staged --

class staged : public capi_test {
protected:
    void SetUp() override {
        capi_test::SetUp();
        options_.max_activation_bytes = k_size;
        options_.staging_bytes = 2 * k_size;
        open();
    }
    ebb_status try_staged(const ebb_offload_args &args) { return ebb_offload_staged(runtime_, &args, &info_); }
};

TEST_F(staged, the_caller_may_overwrite_its_memory_behind_the_stream_at_once) {
    buffer &b = make_buffer();
    hold(copy_direction::d2h);  // the way to the host stands: only the copy on the caller's stream can save the bytes
    const ebb_offload_args args = staged_args_for(b);
    EBB_ASSERT_OK(try_staged(args));
    const ebb_activation a = info_.activation;
    EXPECT_EQ(info_.placement, EBB_PLACE_OFFLOAD);
    EBB_ASSERT_OK(ebb_host_launch(
        runtime_, compute_, [](void *data) { std::memset(data, 0xEE, k_size); }, b.data));
    EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, compute_));
    let_all_pass();
    reload_and_return(a, b);
    EBB_EXPECT_OK(ebb_release(runtime_, a));
    expect_nothing_held();
}

TEST_F(staged, without_room_nothing_is_taken) {
    buffer &b = make_buffer();
    const ebb_reload_info one = reload(offload(make_buffer(), "one"));
    const ebb_reload_info two = reload(offload(make_buffer(), "two"));
    const uint64_t copied = stats().d2h_bytes;
    const ebb_offload_args args = staged_args_for(b);
    info_ = zeroed<ebb_offload_info>();
    EBB_EXPECT_REFUSED(try_staged(args), EBB_NO_SLOT, "65536 bytes wanted");
    EXPECT_EQ(info_.activation, 0U);
    EXPECT_EQ(stats().d2h_bytes, copied);
    EXPECT_EQ(stats().live_activations, 2U);
    EBB_EXPECT_OK(ebb_return(runtime_, one.claim, compute_));
    EBB_EXPECT_OK(try_staged(args));
    reload_and_return(info_.activation, b);
    EBB_EXPECT_OK(ebb_return(runtime_, two.claim, compute_));
}

TEST_F(staged, a_kept_copy_stays_in_our_memory) {
    buffer &b = make_buffer();
    ebb_offload_args args = staged_args_for(b);
    args.placement = EBB_PLACE_KEEP;
    EBB_ASSERT_OK(try_staged(args));
    EXPECT_EQ(info_.placement, EBB_PLACE_KEEP);
    EBB_ASSERT_OK(ebb_host_launch(
        runtime_, compute_, [](void *data) { std::memset(data, 0xEE, k_size); }, b.data));
    reload_and_return(info_.activation, b);
    EXPECT_EQ(stats().d2h_bytes, 0U);
    EBB_EXPECT_OK(ebb_release(runtime_, info_.activation));
    expect_nothing_held();
}

TEST_F(staged, a_larger_one_than_any_slot_is_refused_as_no_slot) {
    buffer &b = make_buffer(4 * k_size);
    const ebb_offload_args args = staged_args_for(b);
    EBB_EXPECT_STATUS(try_staged(args), EBB_NO_SLOT);
    EXPECT_EQ(stats().live_activations, 0U);
}

// What the first step knew does not bind later programs: nothing of this form could be kept where it lies.
TEST_F(staged, a_larger_one_than_those_of_the_first_step_makes_staging_grow) {
    close();
    options_.staging_bytes = options_.max_activation_bytes = 0;
    open();
    std::vector<std::byte> back(32 * k_size);
    const auto step = [&](uint64_t size_bytes, int count) {
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        std::vector<std::pair<ebb_activation, buffer *>> all;
        for (int i = 0; i < count; ++i) {
            buffer &b = make_buffer(size_bytes);
            const ebb_offload_args args = staged_args_for(b);
            EBB_ASSERT_OK(try_staged(args));
            all.emplace_back(info_.activation, &b);
        }
        for (const auto &[a, b] : all) {
            EBB_ASSERT_OK(ebb_reload_into(runtime_, a, back.data(), size_bytes, compute_));
            expect_bytes(back.data(), *b);
            EBB_ASSERT_OK(ebb_release(runtime_, a));
        }
    };
    step(k_size, 3);
    step(k_size, 3);
    step(4 * k_size, 3);
    step(32 * k_size, 3);
    step(k_size, 3);
    EXPECT_GE(stats().staging_bytes, 32 * k_size);
    // Not while somebody reads what lies there, and not beyond what was given.
    const ebb_reload_info claimed = reload(offload(make_buffer()));
    buffer &larger = make_buffer(256 * k_size);
    const ebb_offload_args args = staged_args_for(larger);
    EBB_EXPECT_STATUS(try_staged(args), EBB_NO_SLOT);
    EBB_EXPECT_OK(ebb_return(runtime_, claimed.claim, compute_));
    EBB_EXPECT_OK(try_staged(args));
}

// What does not fit on the device any more leaves what there was.
TEST_F(staged, where_the_device_has_no_more_it_stays_as_it_was) {
    close();
    options_.staging_bytes = options_.max_activation_bytes = 0;
    host_options_.capacity_bytes = 2ULL << 20U;
    open();
    buffer &small = make_buffer();
    const ebb_offload_args args = staged_args_for(small);
    for (int step = 0; step < 3; ++step) {
        EBB_ASSERT_OK(ebb_step(runtime_, EBB_PHASE_TRAIN));
        EBB_ASSERT_OK(try_staged(args));
        EBB_ASSERT_OK(ebb_release(runtime_, info_.activation));
    }
    std::vector<std::byte> elsewhere(4ULL << 20U);
    ebb_offload_args large = args;
    large.data = elsewhere.data();
    large.size_bytes = elsewhere.size();
    EBB_EXPECT_STATUS(try_staged(large), EBB_NO_SLOT);
    EBB_EXPECT_OK(try_staged(args));
}

TEST_F(staged, it_waits_for_all_producers) {
    buffer &b = make_buffer();
    std::memset(b.data, 0, k_size);
    const ebb_stream producers[2] = {compute_, other_};
    ebb_offload_args args = staged_args_for(b);
    args.producers = producers;
    args.producer_count = 2;
    std::atomic<bool> go{false};
    struct writing {
        buffer *b;
        std::atomic<bool> *go;
    } w{&b, &go};
    EBB_ASSERT_OK(ebb_host_launch(
        runtime_, other_,
        [](void *argument) {
            auto *x = static_cast<writing *>(argument);
            while (!*x->go) {
                std::this_thread::yield();
            }
            fill_pattern(x->b->data, k_size, x->b->seed);
        },
        &w));
    EBB_ASSERT_OK(try_staged(args));
    const stream_order order(device_->entries());
    EXPECT_TRUE(order.behind(order.copies(copy_direction::d2d).at(0), order.records().at(1)));
    go = true;
    reload_and_return(info_.activation, b);
}

// ----------------------------------------------------------------------------------------------- reload into --

enum class state { kept, pending, forwarded, offloaded, resident, view_pending, view_offloaded, view_resident, staged };

class reload_into : public capi_test, public ::testing::WithParamInterface<std::tuple<state, bool>> {};

// Whatever state it is in, by a stream or by the calling thread, the bytes come, and the activation is as it was.
TEST_P(reload_into, works_in_every_state) {
    const auto [s, by_thread] = GetParam();
    const bool pending = s == state::pending || s == state::forwarded || s == state::view_pending;
    options_.source_bytes = pending ? k_automatic : k_none_bytes;
    open();
    if (pending) {
        hold(copy_direction::d2h);
    }
    buffer &b = make_buffer();
    ebb_offload_args args = args_for(b);
    args.placement = s == state::kept ? EBB_PLACE_KEEP : EBB_PLACE_OFFLOAD;
    const bool view = s == state::view_pending || s == state::view_offloaded || s == state::view_resident;
    args.storage_id = view ? 5 : 0;
    ebb_activation a = 0;
    if (s == state::staged) {
        const ebb_offload_args plain = staged_args_for(b);
        EBB_ASSERT_OK(ebb_offload_staged(runtime_, &plain, &info_));
        a = info_.activation;
    } else {
        a = offload(args);
    }
    if (s == state::forwarded || s == state::resident || s == state::view_resident) {
        static_cast<void>(reload(a));
    }
    constexpr uint64_t k_part_at = 4096;
    constexpr uint64_t k_part = 12345;
    uint64_t first = 0;
    uint64_t size = k_size;
    if (view) {
        ebb_offload_args part = args_for(b, "part");
        part.data = static_cast<char *>(b.data) + k_part_at;
        part.size_bytes = size = k_part;
        part.storage_id = 5;
        part.deleter = nullptr;
        a = offload(part);
        first = k_part_at;
    }
    void *own = nullptr;
    EBB_ASSERT_OK(ebb_host_alloc(runtime_, size, &own));
    const ebb_statistics before = stats();
    const ebb_stream consumer = by_thread ? EBB_STREAM_CALLING_THREAD : compute_;
    for (int round = 0; round < 2; ++round) {
        if (by_thread) {
            std::memset(own, 0, size);
        } else {
            EBB_ASSERT_OK(ebb_host_launch(
                runtime_, compute_, [](void *data) { std::memset(data, 0xEE, 64); }, own));
        }
        EBB_ASSERT_OK(ebb_reload_into(runtime_, a, own, size, consumer));
        if (by_thread) {
            EBB_ASSERT_OK(ebb_wait(runtime_, a));
        } else {
            EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, compute_));
        }
        std::vector<char> whole(k_size);
        fill_pattern(whole.data(), k_size, b.seed);
        EXPECT_EQ(std::memcmp(own, whole.data() + first, size), 0);
    }
    EXPECT_EQ(stats().forwarded_count, before.forwarded_count) << "a copy of it does not hand the source back";
    EXPECT_EQ(stats().staging_used_bytes, before.staging_used_bytes);
    let_all_pass();
}

INSTANTIATE_TEST_SUITE_P(all, reload_into,
                         ::testing::Combine(::testing::Values(state::kept, state::pending, state::forwarded,
                                                              state::offloaded, state::resident, state::view_pending,
                                                              state::view_offloaded, state::view_resident,
                                                              state::staged),
                                            ::testing::Bool()));

using reload_into_own_memory = capi_test;

// No room for a slot: own memory always works.
TEST_F(reload_into_own_memory, works_where_there_is_no_slot) {
    options_.max_activation_bytes = k_size;
    options_.staging_bytes = k_size + 512;
    open();
    buffer &b = make_buffer();
    const ebb_activation a = offload(b);
    const ebb_reload_info claimed = reload(offload(make_buffer(), "other"));
    ebb_reload_info info = zeroed<ebb_reload_info>();
    EBB_EXPECT_REFUSED(ebb_reload(runtime_, a, compute_, &info), EBB_NO_SLOT,
                       "65536 bytes wanted, 65536 of 66048 held");
    EXPECT_EQ(info.claim, 0U);
    EXPECT_EQ(stats().no_slot_count, 1U);
    void *own = nullptr;
    EBB_ASSERT_OK(ebb_host_alloc(runtime_, k_size, &own));
    EBB_ASSERT_OK(ebb_reload_into(runtime_, a, own, k_size, compute_));
    expect_bytes(own, b);
    EBB_EXPECT_OK(ebb_return(runtime_, claimed.claim, compute_));
    reload_and_return(a, b);
}

// Who holds a claim may write to its slot, as a gradient that is added up; what was offloaded is in the pinned block.
TEST_F(reload_into_own_memory, is_what_was_offloaded_also_where_a_claim_was_written_to) {
    options_.source_bytes = k_none_bytes;
    open();
    buffer &b = make_buffer();
    const ebb_activation a = offload(b);
    const ebb_reload_info claimed = reload(a);
    EBB_ASSERT_OK(ebb_host_launch(
        runtime_, compute_, [](void *data) { std::memset(data, 0xEE, k_size); }, claimed.data));
    void *own = nullptr;
    EBB_ASSERT_OK(ebb_host_alloc(runtime_, k_size, &own));
    EBB_ASSERT_OK(ebb_reload_into(runtime_, a, own, k_size, compute_));
    expect_bytes(own, b);
    EBB_EXPECT_OK(ebb_return(runtime_, claimed.claim, compute_));
    reload_and_return(a, b);
}

// ---------------------------------------------------------------------------------------------- storage keys --

class storage_keys : public capi_test {
protected:
    void SetUp() override {
        capi_test::SetUp();
        open();
        whole_ = &make_buffer();
    }
    // A save of part of the same memory, with a deleter of its own.
    ebb_activation save(uint64_t first, uint64_t size, uint64_t id, uint64_t version) {
        buffer &b = buffers_.emplace_back();
        b.data = static_cast<char *>(whole_->data) + first;
        b.size_bytes = size;
        ebb_offload_args args = args_for(b);
        args.storage_id = id;
        args.storage_version = version;
        return offload(args);
    }
    void expect_part(ebb_activation a, uint64_t first, uint64_t size) {
        const ebb_reload_info info = reload(a);
        ASSERT_EQ(info.size_bytes, size);
        EBB_ASSERT_OK(ebb_host_stream_synchronize(runtime_, compute_));
        std::vector<char> bytes(k_size);
        fill_pattern(bytes.data(), k_size, whole_->seed);
        EXPECT_EQ(std::memcmp(info.data, bytes.data() + first, size), 0);
        EBB_EXPECT_OK(ebb_return(runtime_, info.claim, compute_));
    }
    void expect_all_deleted_once() {
        for (size_t i = 1; i < buffers_.size(); ++i) {
            EXPECT_EQ(buffers_[i].deleted, 1) << i;
        }
    }

    buffer *whole_ = nullptr;
};

TEST_F(storage_keys, a_range_inside_a_copied_one_shares_the_copy) {
    const ebb_activation all = save(0, k_size, 1, 0);
    EXPECT_EQ(stats().d2h_bytes, k_size);
    const ebb_activation part = save(1000, 5000, 1, 0);
    const ebb_activation same = save(0, k_size, 1, 0);
    EXPECT_EQ(info_.placement, EBB_PLACE_OFFLOAD);
    EXPECT_EQ(stats().d2h_bytes, k_size) << "one copy serves all three";
    EXPECT_EQ(stats().pinned_used_bytes, k_size);
    expect_part(part, 1000, 5000);
    expect_part(same, 0, k_size);
    expect_part(all, 0, k_size);
    expect_all_deleted_once();
}

TEST_F(storage_keys, another_version_id_or_range_is_a_copy_of_its_own) {
    save(1024, 2048, 1, 0);
    uint64_t expected = 2048;
    EXPECT_EQ(stats().d2h_bytes, expected);
    save(1024, 2048, 1, 1);
    EXPECT_EQ(stats().d2h_bytes, expected += 2048) << "another version";
    save(1024, 2048, 2, 0);
    EXPECT_EQ(stats().d2h_bytes, expected += 2048) << "another id";
    save(1024, 2048, 0, 0);
    EXPECT_EQ(stats().d2h_bytes, expected += 2048) << "no key";
    save(1024, 2049, 1, 0);
    EXPECT_EQ(stats().d2h_bytes, expected += 2049) << "one byte beyond the copied range";
    save(1023, 2048, 1, 0);
    EXPECT_EQ(stats().d2h_bytes, expected += 2048) << "one byte before it";
    save(1025, 2047, 1, 0);
    EXPECT_EQ(stats().d2h_bytes, expected) << "inside it";
}

class storage_keys_released : public storage_keys, public ::testing::WithParamInterface<int> {};

TEST_P(storage_keys_released, in_any_order) {
    const ebb_activation all[3] = {save(0, k_size, 1, 0), save(512, 4096, 1, 0), save(8192, 8192, 1, 0)};
    const uint64_t first[3] = {0, 512, 8192};
    const uint64_t size[3] = {k_size, 4096, 8192};
    int order[3] = {0, 1, 2};
    for (int i = 0; i < GetParam(); ++i) {
        std::next_permutation(order, order + 3);
    }
    for (int k = 0; k < 3; ++k) {
        for (int left = k; left < 3; ++left) {
            expect_part(all[order[left]], first[order[left]], size[order[left]]);
        }
        EBB_EXPECT_OK(ebb_release(runtime_, all[order[k]]));
    }
    EXPECT_EQ(stats().d2h_bytes, k_size);
    expect_nothing_held();
    expect_all_deleted_once();
}

INSTANTIATE_TEST_SUITE_P(all, storage_keys_released, ::testing::Range(0, 6));

TEST_F(storage_keys, a_view_may_outlive_the_copy_it_shares) {
    const ebb_activation all = save(0, k_size, 1, 0);
    const ebb_activation part = save(512, 4096, 1, 0);
    const ebb_reload_info claimed = reload(part);
    EBB_EXPECT_OK(ebb_release(runtime_, all));
    EXPECT_EQ(stats().pinned_used_bytes, k_size);
    EBB_EXPECT_OK(ebb_release(runtime_, part));
    EXPECT_GT(stats().staging_used_bytes, 0U) << "the claim is out";
    EBB_EXPECT_OK(ebb_return(runtime_, claimed.claim, compute_));
    expect_nothing_held();
    expect_all_deleted_once();
}

}  // namespace
}  // namespace ebb::test
