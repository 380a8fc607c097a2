#include "transfer/lanes.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "stepped_device.hpp"

namespace ebb {
namespace {

constexpr uint64_t k_chunk_bytes = 1000;
constexpr stream_id k_caller{7};

std::byte *at(uint64_t address) {
    return reinterpret_cast<std::byte *>(address);
}

class lanes_test : public testing::Test {
protected:
    lanes &with(uint32_t per_direction) {
        result<std::unique_ptr<lanes>> made = lanes::make(device_, lines_, per_direction, k_chunk_bytes);
        EXPECT_TRUE(made.ok());
        lanes_ = std::move(made).value();
        return *lanes_;
    }

    stepped_device device_;
    timelines lines_{device_};
    std::unique_ptr<lanes> lanes_;
};

TEST_F(lanes_test, copies_are_cut_into_chunks) {
    lanes::transfer t = with(1).begin(copy_direction::h2d);
    EXPECT_TRUE(t.copy(at(1 << 20U), at(500), 2500).ok());
    using piece = stepped_device::piece;
    EXPECT_EQ(device_.pieces, (std::vector<piece>{{t.stream(), copy_direction::h2d, 500, 1000},
                                                  {t.stream(), copy_direction::h2d, 1500, 1000},
                                                  {t.stream(), copy_direction::h2d, 2500, 500}}));
    EXPECT_EQ(lanes_->copied_bytes(copy_direction::h2d), 2500U);
    EXPECT_EQ(lanes_->copied_bytes(copy_direction::d2h), 0U);
}

TEST_F(lanes_test, a_chunk_of_its_own_size_is_one) {
    lanes::transfer t = with(1).begin(copy_direction::d2h);
    EXPECT_TRUE(t.copy(at(1 << 20U), at(0), k_chunk_bytes).ok());
    EXPECT_TRUE(t.flush().ok());
    EXPECT_EQ(device_.pieces.size(), 1U);
}

// In the order of the calls, small ones and large ones, and none twice.
TEST_F(lanes_test, small_pieces_are_gathered_until_a_large_one_comes_or_many_have_come) {
    lanes::transfer t = with(1).begin(copy_direction::h2d);
    for (uint64_t i = 0; i < 40; ++i) {
        EXPECT_TRUE(t.copy(at(1 << 20U), at(i), 10).ok());
        EXPECT_EQ(device_.pieces.size(), i < 31 ? 0U : 32U);
    }
    EXPECT_TRUE(t.copy(at(1 << 20U), at(100), 2 * k_chunk_bytes).ok());
    EXPECT_TRUE(t.copy(at(1 << 20U), at(101), 10).ok());
    EXPECT_TRUE(t.flush().ok());
    EXPECT_TRUE(t.flush().ok());
    ASSERT_EQ(device_.pieces.size(), 43U);
    for (uint64_t i = 0; i < 40; ++i) {
        EXPECT_EQ(device_.pieces[i].offset_bytes, i);
    }
    EXPECT_EQ(device_.pieces[40].offset_bytes, 100U);
    EXPECT_EQ(device_.pieces[42].offset_bytes, 101U);
}

TEST_F(lanes_test, each_direction_has_its_own_lanes_and_takes_them_in_turn) {
    lanes &both = with(2);
    const stream_id first = both.begin(copy_direction::d2h).stream();
    const stream_id second = both.begin(copy_direction::d2h).stream();
    const stream_id back = both.begin(copy_direction::h2d).stream();
    EXPECT_NE(first, second);
    EXPECT_NE(back, first);
    EXPECT_NE(back, second);
    EXPECT_EQ(both.begin(copy_direction::d2h).stream(), first);
    EXPECT_NE(both.begin(copy_direction::h2d).stream(), back);
}

TEST_F(lanes_test, a_lane_does_not_wait_again_for_what_it_is_behind) {
    ticket early;
    ticket late;
    EXPECT_TRUE(lines_.mark(k_caller, early).ok());
    EXPECT_TRUE(lines_.mark(k_caller, late).ok());
    lanes &one = with(1);
    lanes::transfer out = one.begin(copy_direction::d2h);
    EXPECT_TRUE(out.wait(late).ok());
    EXPECT_TRUE(out.wait(early).ok());
    EXPECT_TRUE(one.begin(copy_direction::d2h).wait(late).ok());
    EXPECT_EQ(device_.waits, (std::vector<stepped_device::wait>{{out.stream(), k_caller, 2}}));
    lanes::transfer back = one.begin(copy_direction::h2d);
    EXPECT_TRUE(back.wait(early).ok());
    EXPECT_EQ(device_.waits.back(), (stepped_device::wait{back.stream(), k_caller, 1})) << "another lane is not";
}

// A block that is used again was read by a reload that the producer's stream has waited for since.
TEST_F(lanes_test, a_lane_is_behind_what_a_stream_it_waits_for_was_behind) {
    lanes &one = with(1);
    ticket before;
    EXPECT_TRUE(lines_.mark(k_caller, before).ok());
    ticket arrived;
    EXPECT_TRUE(one.begin(copy_direction::h2d).finish(arrived).ok());
    EXPECT_TRUE(lines_.wait(k_caller, arrived).ok());
    ticket produced;
    EXPECT_TRUE(lines_.mark(k_caller, produced).ok());
    device_.waits.clear();
    lanes::transfer out = one.begin(copy_direction::d2h);
    EXPECT_TRUE(out.wait(before).ok());
    EXPECT_TRUE(out.wait(produced).ok());
    EXPECT_TRUE(out.wait(arrived).ok());
    EXPECT_EQ(device_.waits,
              (std::vector<stepped_device::wait>{{out.stream(), k_caller, 1}, {out.stream(), k_caller, 2}}));
    // Not behind what the stream came to only later.
    ticket later;
    EXPECT_TRUE(one.begin(copy_direction::h2d).finish(later).ok());
    EXPECT_TRUE(lines_.wait(k_caller, later).ok());
    device_.waits.clear();
    EXPECT_TRUE(out.wait(later).ok());
    EXPECT_EQ(device_.waits.size(), 1U);
}

TEST_F(lanes_test, what_a_lane_is_behind_already_is_not_forgotten_for_less) {
    lanes &one = with(1);
    EXPECT_TRUE(lines_.of(k_caller).ok());
    ticket early;
    EXPECT_TRUE(one.begin(copy_direction::h2d).finish(early).ok());
    EXPECT_TRUE(lines_.wait(k_caller, early).ok());
    ticket produced;
    EXPECT_TRUE(lines_.mark(k_caller, produced).ok());
    ticket late;
    EXPECT_TRUE(one.begin(copy_direction::h2d).finish(late).ok());
    lanes::transfer out = one.begin(copy_direction::d2h);
    EXPECT_TRUE(out.wait(late).ok());
    EXPECT_TRUE(out.wait(produced).ok());
    device_.waits.clear();
    EXPECT_TRUE(out.wait(late).ok());
    EXPECT_TRUE(device_.waits.empty());
}

TEST_F(lanes_test, a_lane_is_not_behind_what_the_device_refused_to_let_it_wait_for) {
    ticket point;
    EXPECT_TRUE(lines_.mark(k_caller, point).ok());
    lanes::transfer out = with(1).begin(copy_direction::d2h);
    device_.refuse_waits = true;
    EXPECT_EQ(out.wait(point).code(), code::device_error);
    device_.refuse_waits = false;
    EXPECT_TRUE(out.wait(point).ok());
    EXPECT_EQ(device_.waits.size(), 1U);
}

TEST_F(lanes_test, in_a_capture_each_lane_has_a_stream_of_its_own) {
    const capture_id capture{3};
    lines_.open_capture(capture);
    result<std::unique_ptr<lanes>> made = lanes::make_in_capture(device_, lines_, 2, k_chunk_bytes, capture);
    ASSERT_TRUE(made.ok());
    std::set<stream_id> streams;
    for (int i = 0; i < 2; ++i) {
        streams.insert(made.value()->begin(copy_direction::d2h).stream());
        streams.insert(made.value()->begin(copy_direction::h2d).stream());
    }
    EXPECT_EQ(streams.size(), 4U);
}

TEST_F(lanes_test, a_transfer_ends_with_a_point_of_its_lane) {
    lanes::transfer t = with(1).begin(copy_direction::d2h);
    ticket done;
    EXPECT_TRUE(t.finish(done).ok());
    EXPECT_TRUE(lines_.wait(k_caller, done).ok());
    EXPECT_EQ(device_.waits, (std::vector<stepped_device::wait>{{k_caller, t.stream(), 1}}));
    device_.refuse_records = true;
    EXPECT_EQ(t.finish(done).code(), code::device_error);
}

}  // namespace
}  // namespace ebb
