// The memory of a source is the caller's again in the order of its home stream: behind the producers, behind every
// stream that read it, and behind the copy that reads it. Each of these waits alone: all the others are over or on
// another stream, so that nothing else brings the order about.

#include <gtest/gtest.h>

#include <atomic>

#include "order_fixture.hpp"

namespace ebb::test {
namespace {

class source_reuse : public order_test {
protected:
    source_reuse() : order_test(one_source()) {}

private:
    static runtime_options one_source() {  // stays until another one comes
        runtime_options o = sources_stay(2);
        o.source_bytes = k_unit_bytes;
        return o;
    }
};

TEST_P(source_reuse, of_a_kept_one_is_behind_its_producer) {
    stand(compute_);
    const session::saved x = s_.save(compute_, "x", k_unit_bytes, at_home(EBB_PLACE_KEEP));
    const size_t produced = records().back();
    s_.release(x);
    EXPECT_EQ(s_.deleted(), 1U);
    expect_next_behind(home_, produced);
    finish();
}

TEST_P(source_reuse, of_a_kept_one_is_behind_its_readers) {
    const ebb_stream reader = s_.stream();
    const session::saved x = s_.save(compute_, "x", k_unit_bytes, at_home(EBB_PLACE_KEEP));
    const ebb_reload_info info = s_.reload(x, consumer_);
    EBB_ASSERT_OK(ebb_use(s_.runtime(), info.claim, reader));
    for (const ebb_stream stream : {consumer_, reader}) {
        stand(stream);
        s_.check(stream, info.data, x);
    }
    s_.device().clear();
    s_.give_back(info, consumer_);
    const std::vector<size_t> last_uses = records();
    ASSERT_EQ(last_uses.size(), 2U);
    s_.release(x);
    EXPECT_EQ(s_.deleted(), 1U);
    expect_next_behind(home_, last_uses[0]);
    expect_next_behind(home_, last_uses[1]);
    finish();
}

// Handed back while its copy stands: whoever read it is through, and the copy still reads it.
TEST_P(source_reuse, of_one_that_was_handed_back_is_behind_its_own_copy) {
    std::atomic<bool> copied{false};
    s_.hold(copy_direction::d2h);
    const session::saved x = s_.save(compute_, "x", k_unit_bytes, at_home());
    const size_t copy = copies(copy_direction::d2h).at(0);
    const ebb_reload_info info = s_.reload(x, consumer_);
    ASSERT_EQ(info.data, x.data);
    s_.check(consumer_, info.data, x);
    s_.give_back(info, consumer_);
    s_.sync(consumer_);
    s_.release(x);
    EXPECT_EQ(s_.deleted(), 1U);
    s_.check(home_, [&copied] { return copied.load(); });
    expect_next_behind(home_, copy);
    copied = true;
    finish();
}

// The claim is returned after the release.
TEST_P(source_reuse, of_one_that_was_claimed_beyond_its_release_is_behind_its_own_copy) {
    s_.hold(copy_direction::d2h);
    const session::saved x = s_.save(compute_, "x", k_unit_bytes, at_home());
    const size_t copy = copies(copy_direction::d2h).at(0);
    const ebb_reload_info info = s_.reload(x, consumer_);
    s_.release(x);
    EXPECT_EQ(s_.deleted(), 0U);
    s_.check(consumer_, info.data, x);
    s_.sync(consumer_);
    s_.give_back(info, consumer_);
    EXPECT_EQ(s_.deleted(), 1U);
    expect_next_behind(home_, copy);
    finish();
}

TEST_P(source_reuse, of_one_that_is_given_up_is_behind_its_copy) {
    s_.hold(copy_direction::d2h);
    const session::saved x = s_.save(compute_, "x", k_unit_bytes, at_home());
    const size_t copy = copies(copy_direction::d2h).at(0);
    s_.release(x);
    EXPECT_EQ(s_.deleted(), 1U);
    expect_next_behind(home_, copy);
    finish();
}

// Not handed back: copied from the source into memory of the caller's, on the consumer's stream.
TEST_P(source_reuse, of_one_that_is_given_up_is_behind_what_reads_it_for_the_caller) {
    std::byte *own = s_.alloc(k_unit_bytes);
    const session::saved x = s_.save(compute_, "x", k_unit_bytes, at_home());
    stand(consumer_);
    EBB_ASSERT_OK(ebb_reload_into(s_.runtime(), x.activation, own, k_unit_bytes, consumer_));
    s_.check(consumer_, own, x);
    const std::vector<size_t> reads = copies(copy_direction::d2d);
    ASSERT_EQ(reads.size(), 1U);
    s_.release(x);
    EXPECT_EQ(s_.deleted(), 1U);
    expect_next_behind(home_, reads[0]);
    finish();
    s_.free(own);
}

TEST_P(source_reuse, of_one_that_is_recomputed_is_behind_its_producer) {
    stand(compute_);
    ebb_offload_args args = at_home(EBB_PLACE_RECOMPUTE);
    args.flags = EBB_OFFLOAD_CAN_RECOMPUTE;
    const session::saved x = s_.save(compute_, "x", k_unit_bytes, args);
    const size_t produced = records().at(0);
    EXPECT_EQ(s_.deleted(), 1U);
    expect_next_behind(home_, produced);
    s_.release(x);
    finish();
}

// A view has no copy of its own: the one that it shares reads its memory, on behalf of both.
class view_reuse : public source_reuse {
protected:
    void SetUp() override {
        s_.hold(copy_direction::d2h);
        ebb_offload_args key{};
        key.storage_id = 7;
        whole_ = s_.save(compute_, "whole", k_unit_bytes, key);
        copy_ = copies(copy_direction::d2h).at(0);
    }
    session::saved offload_view() {
        ebb_offload_args args = at_home();
        args.storage_id = 7;
        args.name = "view";
        args.data = whole_.data;
        args.size_bytes = k_unit_bytes / 2;
        args.producers = &compute_;
        args.producer_count = 1;
        const size_t before = copies(copy_direction::d2h).size();
        session::saved view = s_.offload(args, whole_.seed, nullptr);
        EXPECT_EQ(copies(copy_direction::d2h).size(), before);
        return view;
    }

    session::saved whole_;
    size_t copy_ = 0;
};

TEST_P(view_reuse, of_one_that_is_released_is_behind_the_copy) {
    s_.release(offload_view());
    EXPECT_EQ(s_.deleted(), 1U);
    expect_next_behind(home_, copy_);
    s_.release(whole_);
    finish();
}

TEST_P(view_reuse, of_one_that_is_given_up_with_the_whole_is_behind_the_copy) {
    const session::saved view = offload_view();
    const session::saved next = s_.save(compute_, "next");
    EXPECT_EQ(s_.deleted(), 2U) << "of the whole, and of the view";
    expect_next_behind(home_, copy_);
    for (const session::saved &each : {whole_, view, next}) {
        s_.release(each);
    }
    finish();
}

TEST_P(view_reuse, of_one_that_comes_after_the_whole_was_given_up_is_behind_the_copy) {
    const session::saved next = s_.save(compute_, "next");
    EXPECT_EQ(s_.deleted(), 1U);
    const session::saved view = offload_view();
    EXPECT_EQ(s_.deleted(), 2U);
    expect_next_behind(home_, copy_);
    for (const session::saved &each : {whole_, view, next}) {
        s_.release(each);
    }
    finish();
}

TEST_P(view_reuse, of_one_that_is_released_is_behind_readers_of_the_whole) {
    const session::saved view = offload_view();
    const ebb_reload_info info = s_.reload(whole_, consumer_);
    ASSERT_EQ(info.data, whole_.data);
    stand(consumer_);
    s_.check(consumer_, info.data, whole_);
    s_.give_back(info, consumer_);
    const size_t last_use = records().back();
    s_.release(view);
    EXPECT_EQ(s_.deleted(), 1U);
    expect_next_behind(home_, last_use);
    s_.release(whole_);
    finish();
}

// Where the home is the calling thread no stream can wait: the deleter does.
class source_of_the_thread : public source_reuse {
protected:
    [[nodiscard]] ebb_offload_args at_thread(ebb_placement placement = EBB_PLACE_BY_POLICY) const {
        ebb_offload_args args = at_home(placement);
        args.home = &thread_;
        return args;
    }
    void expect_deleted_only_later() {
        EBB_EXPECT_OK(ebb_progress(s_.runtime()));
        EXPECT_EQ(s_.deleted(), 0U);
        s_.let_all_pass();
        EBB_EXPECT_OK(ebb_wait_room(s_.runtime()));
        EXPECT_EQ(s_.deleted(), 1U);
        finish();
    }
    ebb_stream thread_ = EBB_STREAM_CALLING_THREAD;
};

TEST_P(source_of_the_thread, kept_is_freed_once_it_is_produced) {
    stand(compute_);
    s_.release(s_.save(compute_, "x", k_unit_bytes, at_thread(EBB_PLACE_KEEP)));
    expect_deleted_only_later();
}

TEST_P(source_of_the_thread, kept_is_freed_once_it_is_read) {
    const session::saved x = s_.save(compute_, "x", k_unit_bytes, at_thread(EBB_PLACE_KEEP));
    const ebb_reload_info info = s_.reload(x, consumer_);
    stand(consumer_);
    s_.check(consumer_, info.data, x);
    s_.give_back(info, consumer_);
    s_.release(x);
    expect_deleted_only_later();
}

TEST_P(source_of_the_thread, handed_back_is_freed_once_its_own_copy_is_done) {
    s_.hold(copy_direction::d2h);
    const session::saved x = s_.save(compute_, "x", k_unit_bytes, at_thread());
    const ebb_reload_info info = s_.reload(x, consumer_);
    ASSERT_EQ(info.data, x.data);
    s_.give_back(info, consumer_);
    s_.sync(consumer_);
    s_.release(x);
    expect_deleted_only_later();
}

EBB_ON_EVERY_MACHINE(source_of_the_thread);
EBB_ON_EVERY_MACHINE(source_reuse);
EBB_ON_EVERY_MACHINE(view_reuse);

}  // namespace
}  // namespace ebb::test
