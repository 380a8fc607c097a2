// Slots, blocks and the caller's own memory: a copy comes behind whoever wrote what it reads, and behind whoever used
// the memory that it writes.

#include <gtest/gtest.h>

#include <array>

#include "order_fixture.hpp"

namespace ebb::test {
namespace {

// ----------------------------------------------------------------------------------------------- one host block --

class one_block : public order_test {
protected:
    one_block() : order_test(options()) {}

    // On a stream that does not wait for what was given up, as its home does: so not in memory from there either.
    session::saved save_elsewhere() {
        s_.launch(home_, [data = elsewhere_] { fill_pattern(data, k_unit_bytes, 1000); });
        ebb_offload_args args{};
        args.name = "elsewhere";
        args.data = elsewhere_;
        args.size_bytes = k_unit_bytes;
        args.producers = &home_;
        args.producer_count = 1;
        const session::saved saved = s_.offload(args, 1000, elsewhere_);
        EXPECT_EQ(saved.info.placement, EBB_PLACE_OFFLOAD);
        return saved;
    }

private:
    static runtime_options options() {
        runtime_options o = copies_always(2);
        o.host_bytes = k_unit_bytes;
        o.lanes = 2;  // the next copy is on another lane
        return o;
    }

    std::byte *elsewhere_ = s_.alloc(k_unit_bytes);
};

TEST_P(one_block, is_reused_behind_the_copy_into_it) {
    s_.hold(copy_direction::d2h);
    s_.release(s_.save(compute_, "x"));
    const session::saved next = save_elsewhere();
    const std::vector<size_t> out = copies(copy_direction::d2h);
    ASSERT_EQ(out.size(), 2U);
    expect_behind(out[1], out[0]);
    s_.release(next);
    finish();
}

// Two reads of it, one on each lane, for streams that have nothing to do with each other.
TEST_P(one_block, is_reused_behind_every_copy_out_of_it) {
    const std::array<std::byte *, 2> own = {s_.alloc(k_unit_bytes), s_.alloc(k_unit_bytes)};
    const std::array<ebb_stream, 2> consumers = {consumer_, s_.stream()};
    const session::saved x = s_.save(compute_, "x");
    s_.hold(copy_direction::h2d);
    for (size_t i = 0; i < own.size(); ++i) {
        EBB_ASSERT_OK(ebb_reload_into(s_.runtime(), x.activation, own[i], k_unit_bytes, consumers[i]));
        s_.check(consumers[i], own[i], x);
    }
    s_.release(x);
    const session::saved next = save_elsewhere();
    const std::vector<size_t> in = copies(copy_direction::h2d);
    ASSERT_EQ(in.size(), 2U);
    const size_t out = copies(copy_direction::d2h).back();
    expect_behind(out, in[0]);
    expect_behind(out, in[1]);
    s_.release(next);
    finish();
    for (std::byte *data : own) {
        s_.free(data);
    }
}

TEST_P(one_block, is_reused_behind_a_copy_of_a_part_of_it) {
    constexpr uint64_t k_half = k_unit_bytes / 2;
    std::byte *own = s_.alloc(k_half);
    ebb_offload_args args{};
    args.storage_id = 7;
    const session::saved whole = s_.save(compute_, "whole", k_unit_bytes, args);
    args.name = "view";
    args.data = whole.data;
    args.size_bytes = k_half;
    args.producers = &compute_;
    args.producer_count = 1;
    const session::saved view = s_.offload(args, whole.seed, nullptr);
    s_.hold(copy_direction::h2d);
    EBB_ASSERT_OK(ebb_reload_into(s_.runtime(), view.activation, own, k_half, consumer_));
    s_.check(consumer_, own, view);
    const std::vector<size_t> in = copies(copy_direction::h2d);
    ASSERT_EQ(in.size(), 1U);
    s_.release(view);
    s_.release(whole);
    const session::saved next = save_elsewhere();
    expect_behind(copies(copy_direction::d2h).back(), in[0]);
    s_.release(next);
    finish();
    s_.free(own);
}

// -------------------------------------------------------------------------------------- one slot, staged sources --

class one_slot : public order_test {
protected:
    one_slot() : order_test(copies_always(1)) {}

    // Staged, from memory that the streams named fill in turn.
    session::saved save_staged(const std::vector<ebb_stream> &producers) {
        session::saved saved;
        saved.seed = 1000;
        saved.size_bytes = k_unit_bytes;
        saved.data = data_;
        for (size_t i = 0; i < producers.size(); ++i) {
            const uint64_t first = i * k_unit_bytes / producers.size();
            const uint64_t end = (i + 1) * k_unit_bytes / producers.size();
            s_.launch(producers[i], [data = data_, first, end] {
                std::vector<std::byte> all(k_unit_bytes);
                fill_pattern(all.data(), k_unit_bytes, 1000);
                std::memcpy(data + first, all.data() + first, end - first);
            });
        }
        ebb_offload_args args{};
        args.struct_size = sizeof(args);
        args.name = "staged";
        args.data = data_;
        args.size_bytes = k_unit_bytes;
        args.producers = producers.data();
        args.producer_count = producers.size();
        saved.info.struct_size = sizeof(saved.info);
        EBB_EXPECT_OK(ebb_offload_staged(s_.runtime(), &args, &saved.info));
        saved.activation = saved.info.activation;
        return saved;
    }
    void finish_with(const session::saved &saved) {
        s_.let_all_pass();
        s_.read_back(saved, consumer_);
        s_.release(saved);
        finish();
        s_.free(data_);
    }

    std::byte *data_ = s_.alloc(k_unit_bytes);
};

TEST_P(one_slot, is_filled_behind_every_producer_of_a_staged_source) {
    const ebb_stream late = s_.stream();
    stand(late);
    const session::saved x = save_staged({compute_, late});
    const std::vector<size_t> produced = records();
    expect_behind(copies(copy_direction::d2d).at(0), produced.at(1));
    finish_with(x);
}

TEST_P(one_slot, is_filled_by_a_staged_source_behind_its_last_reader) {
    const session::saved x = s_.save(compute_, "x");
    const ebb_reload_info info = s_.reload(x, consumer_);
    stand(consumer_);
    s_.check(consumer_, info.data, x);
    s_.give_back(info, consumer_);
    const size_t last_use = records().back();
    const session::saved y = save_staged({compute_});
    expect_behind(copies(copy_direction::d2d).at(0), last_use);
    s_.release(x);
    finish_with(y);
}

TEST_P(one_slot, of_a_staged_source_is_reused_behind_the_copy_out_of_it) {
    const session::saved x = s_.save(compute_, "x");
    s_.drain();
    s_.device().clear();
    s_.hold(copy_direction::d2h);
    const session::saved y = save_staged({compute_});
    const ebb_reload_info info = s_.reload(x, consumer_);
    expect_behind(copies(copy_direction::h2d).at(0), copies(copy_direction::d2h).at(0));
    s_.check(consumer_, info.data, x);
    s_.give_back(info, consumer_);
    s_.release(x);
    finish_with(y);
}

// ----------------------------------------------------------------------------------------- the caller's own memory --

class own_memory : public order_test {
protected:
    own_memory() : order_test(copies_always(1)) {}
    void finish() {
        order_test::finish();
        s_.free(own_);
    }
    // On the consumer's stream, since the bytes are on the device.
    size_t copy_from_device(const session::saved &x) {
        EBB_EXPECT_OK(ebb_reload_into(s_.runtime(), x.activation, own_, k_unit_bytes, consumer_));
        s_.check(consumer_, own_, x);
        return copies(copy_direction::d2d).at(0);
    }
    std::byte *own_ = s_.alloc(k_unit_bytes);
};

TEST_P(own_memory, is_filled_from_a_slot_behind_the_copy_into_that) {
    const session::saved x = s_.prefetched(compute_, "x", session::copy_in::is_held);
    expect_behind(copy_from_device(x), copies(copy_direction::h2d).at(0));
    s_.release(x);
    finish();
}

TEST_P(own_memory, is_filled_from_a_source_behind_its_producer) {
    stand(compute_);
    const session::saved x = s_.save(compute_, "x", k_unit_bytes, at_home(EBB_PLACE_KEEP));
    const size_t produced = records().back();
    expect_behind(copy_from_device(x), produced);
    s_.release(x);
    finish();
}

// Copied on a lane, since the bytes are in host memory: all of them, or a part.
TEST_P(own_memory, is_written_behind_what_the_consumer_did_with_it) {
    ebb_offload_args args{};
    args.storage_id = 7;
    const session::saved whole = s_.save(compute_, "whole", k_unit_bytes, args);
    args.name = "view";
    args.data = whole.data;
    args.size_bytes = k_unit_bytes / 2;
    args.producers = &compute_;
    args.producer_count = 1;
    const session::saved view = s_.offload(args, whole.seed, nullptr);
    for (const session::saved &x : {whole, view}) {
        const ebb_stream consumer = s_.stream();
        stand(consumer);
        s_.launch(consumer, [own = own_] { std::memset(own, 0xFF, k_unit_bytes); });
        s_.device().clear();
        EBB_ASSERT_OK(ebb_reload_into(s_.runtime(), x.activation, own_, x.size_bytes, consumer));
        const size_t used = records().at(0);
        ASSERT_EQ(copies(copy_direction::h2d).size(), 1U);
        expect_behind(copies(copy_direction::h2d)[0], used);
        s_.check(consumer, own_, x);
        gate_.let();
        s_.sync(consumer);
    }
    s_.release(view);
    s_.release(whole);
    finish();
}

EBB_ON_EVERY_MACHINE(one_block);
EBB_ON_EVERY_MACHINE(one_slot);
EBB_ON_EVERY_MACHINE(own_memory);

}  // namespace
}  // namespace ebb::test
