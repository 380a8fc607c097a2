#include "memory/sub_allocator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/one_ticket.hpp"

namespace ebb {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr uint64_t k_granule = 512;

// Addresses are never touched, so a region can lie anywhere.
std::byte *at(uint64_t address) {
    return reinterpret_cast<std::byte *>(address);
}

class sub_allocator_test : public ::testing::Test {
protected:
    static constexpr uint64_t k_base = 1ULL << 32U;

    sub_allocator::piece take(uint64_t granules, fit_rule rule = fit_rule::best) {
        waits_.clear();
        const auto piece = sub_.allocate(granules * k_granule, rule, waits_);
        EXPECT_TRUE(piece.has_value());
        return piece.value_or(sub_allocator::piece{});
    }
    [[nodiscard]] static uint64_t granule_of(const sub_allocator::piece &piece) {
        return (reinterpret_cast<uint64_t>(piece.data) - k_base) / k_granule;
    }
    [[nodiscard]] std::vector<uint64_t> waited() const {
        std::vector<uint64_t> sequences;
        for (const ticket &t : waits_) {
            sequences.push_back(t.sequence);
        }
        return sequences;
    }

    sub_allocator sub_{k_granule};
    std::vector<ticket> waits_;
};

TEST_F(sub_allocator_test, rounds_up_to_the_granule_and_never_down) {
    sub_.add_region(at(k_base), 100 * k_granule);
    for (const uint64_t size_bytes : {1ULL, 511ULL, 512ULL, 513ULL, 5000ULL}) {
        const auto piece = sub_.allocate(size_bytes, fit_rule::best, waits_);
        ASSERT_TRUE(piece.has_value());
        EXPECT_GE(piece->size_bytes, size_bytes);
        EXPECT_LT(piece->size_bytes, size_bytes + k_granule);
        EXPECT_EQ(piece->size_bytes % k_granule, 0U);
    }
}

TEST_F(sub_allocator_test, fills_a_region_exactly_and_refuses_one_byte_more) {
    sub_.add_region(at(k_base), 10 * k_granule);
    EXPECT_FALSE(sub_.allocate(10 * k_granule + 1, fit_rule::best, waits_).has_value());
    take(4);
    take(6);
    EXPECT_EQ(sub_.free_bytes(), 0U);
    EXPECT_FALSE(sub_.allocate(1, fit_rule::best, waits_).has_value());
    EXPECT_FALSE(sub_.allocate(1, fit_rule::oldest, waits_).has_value());
    EXPECT_FALSE(sub_.allocate_largest(1, waits_).has_value());
}

TEST_F(sub_allocator_test, sizes_near_two_to_the_64_are_refused) {
    sub_.add_region(at(k_base), 10 * k_granule);
    EXPECT_FALSE(sub_.allocate(~uint64_t{0}, fit_rule::best, waits_).has_value());
    EXPECT_FALSE(sub_.allocate(~uint64_t{0}, fit_rule::oldest, waits_).has_value());
}

TEST_F(sub_allocator_test, neighbours_merge_in_any_order_of_free) {
    std::vector<int> order = {0, 1, 2, 3};
    do {
        sub_allocator sub(k_granule);
        sub.add_region(at(k_base), 40 * k_granule);
        std::vector<sub_allocator::piece> pieces;
        for (int i = 0; i < 4; ++i) {
            pieces.push_back(*sub.allocate(10 * k_granule, fit_rule::best, waits_));
        }
        for (const int i : order) {
            sub.free(pieces[static_cast<size_t>(i)].segment, {});
        }
        EXPECT_EQ(sub.largest_free_bytes(), 40 * k_granule);
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(sub_allocator_test, regions_side_by_side_never_merge) {
    sub_.add_region(at(k_base), 10 * k_granule);
    sub_.add_region(at(k_base + 10 * k_granule), 10 * k_granule);
    EXPECT_EQ(sub_.largest_free_bytes(), 10 * k_granule);
    const auto first = take(10);
    const auto second = take(10);
    sub_.free(first.segment, {});
    sub_.free(second.segment, {});
    EXPECT_EQ(sub_.free_bytes(), 20 * k_granule);
    EXPECT_FALSE(sub_.allocate(11 * k_granule, fit_rule::best, waits_).has_value());
}

TEST_F(sub_allocator_test, reports_the_tickets_of_the_consumed_segments_and_of_no_other) {
    sub_.add_region(at(k_base), 40 * k_granule);
    std::vector<sub_allocator::piece> pieces;
    for (int i = 0; i < 4; ++i) {
        pieces.push_back(take(10));
        EXPECT_THAT(waits_, IsEmpty());  // fresh memory
    }
    for (uint64_t i = 0; i < 4; ++i) {
        sub_.free(pieces[i].segment, one_ticket(i + 1));
    }
    // Cut from the older end: all of the first segment and half of the second.
    const auto first = take(15);
    EXPECT_EQ(granule_of(first), 0U);
    EXPECT_THAT(waited(), UnorderedElementsAre(1, 2));
    // What is left of the second segment keeps its ticket.
    const auto second = take(5);
    EXPECT_EQ(granule_of(second), 15U);
    EXPECT_THAT(waited(), ElementsAre(2));
    const auto third = take(20);
    EXPECT_EQ(granule_of(third), 20U);
    EXPECT_THAT(waited(), UnorderedElementsAre(3, 4));
}

TEST_F(sub_allocator_test, a_set_of_several_tickets_is_reported_whole) {
    sub_.add_region(at(k_base), 10 * k_granule);
    ticket_set uses;
    EXPECT_TRUE(uses.add({1, 7}));
    EXPECT_TRUE(uses.add({2, 9}));
    sub_.free(take(10).segment, uses);
    take(1);
    EXPECT_THAT(waits_, UnorderedElementsAre(ticket{1, 7}, ticket{2, 9}));
}

TEST_F(sub_allocator_test, cuts_from_the_upper_end_when_that_was_freed_first) {
    sub_.add_region(at(k_base), 40 * k_granule);
    std::vector<sub_allocator::piece> pieces;
    for (int i = 0; i < 4; ++i) {
        pieces.push_back(take(10));
    }
    for (uint64_t i = 4; i-- > 0;) {
        sub_.free(pieces[i].segment, one_ticket(10 - i));
    }
    EXPECT_EQ(granule_of(take(5)), 35U);
    EXPECT_THAT(waited(), ElementsAre(7));
    EXPECT_EQ(granule_of(take(12)), 23U);
    EXPECT_THAT(waited(), UnorderedElementsAre(7, 8));
    EXPECT_EQ(granule_of(take(23)), 0U);
    EXPECT_THAT(waited(), UnorderedElementsAre(8, 9, 10));
}

TEST_F(sub_allocator_test, best_takes_the_exact_size_before_a_larger_one) {
    sub_.add_region(at(k_base), 10000 * k_granule);
    const auto large = take(1043);
    const auto wall_1 = take(1);
    const auto exact = take(1041);
    const auto wall_2 = take(1);
    const auto close = take(1042);
    const auto wall_3 = take(1);
    for (const auto &piece : {large, close, exact}) {  // one class, the exact one listed last
        sub_.free(piece.segment, {});
    }
    EXPECT_EQ(take(1041).data, exact.data);
    EXPECT_EQ(take(1041).data, close.data);
    EXPECT_EQ(take(1041).data, large.data);
    for (const auto &wall : {wall_1, wall_2, wall_3}) {
        sub_.free(wall.segment, {});
    }
}

TEST_F(sub_allocator_test, of_equal_ranges_the_one_freed_first_is_taken) {
    sub_.add_region(at(k_base), 1000 * k_granule);
    std::vector<sub_allocator::piece> pieces;
    for (int i = 0; i < 4; ++i) {
        pieces.push_back(take(8));
        take(1);
    }
    for (const size_t i : {2U, 0U, 3U, 1U}) {
        sub_.free(pieces[i].segment, {});
    }
    for (const size_t i : {2U, 0U, 3U, 1U}) {
        EXPECT_EQ(take(8).data, pieces[i].data);
    }
}

TEST_F(sub_allocator_test, a_fit_that_lies_deep_in_its_class_is_still_found) {
    sub_.add_region(at(k_base), 20 * 1024 * k_granule + 20 * k_granule);
    std::vector<sub_allocator::piece> pieces;
    for (uint64_t i = 0; i < 20; ++i) {
        pieces.push_back(take(1024 + (i == 19 ? 20 : 0)));  // one class: 1024 to 1055
    }
    // Every second one free, so that none merge; the only one that fits comes last.
    for (size_t i = 1; i < 20; i += 2) {
        sub_.free(pieces[i].segment, {});
    }
    EXPECT_EQ(take(1030).data, pieces[19].data);
}

TEST_F(sub_allocator_test, oldest_takes_the_range_whose_bytes_were_freed_first_whatever_its_size) {
    sub_.add_region(at(k_base), 40 * k_granule);
    const auto small = take(5);
    take(1);
    const auto large = take(20);
    take(14);
    sub_.free(large.segment, one_ticket(1));
    sub_.free(small.segment, one_ticket(2));
    EXPECT_EQ(take(5, fit_rule::oldest).data, large.data);
    EXPECT_EQ(take(5, fit_rule::best).data, small.data);
}

TEST_F(sub_allocator_test, largest_gives_what_there_is_up_to_the_size) {
    sub_.add_region(at(k_base), 60 * k_granule);
    const auto ten = take(10);
    take(1);
    const auto thirty = take(30);
    take(19);
    sub_.free(ten.segment, {});
    sub_.free(thirty.segment, one_ticket(5));
    EXPECT_EQ(sub_.largest_pieces_bytes(1, 0, 60 * k_granule), 30 * k_granule);
    EXPECT_EQ(sub_.largest_pieces_bytes(2, 0, 60 * k_granule), 40 * k_granule);
    EXPECT_EQ(sub_.largest_pieces_bytes(9, 0, 60 * k_granule), 40 * k_granule);
    EXPECT_EQ(sub_.largest_pieces_bytes(9, 0, 30 * k_granule), 30 * k_granule);
    EXPECT_EQ(sub_.largest_pieces_bytes(9, 11 * k_granule, 60 * k_granule), 30 * k_granule);
    const auto first = sub_.allocate_largest(35 * k_granule, waits_);
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(first->data, thirty.data);
    EXPECT_EQ(first->size_bytes, 30 * k_granule);
    EXPECT_THAT(waited(), ElementsAre(5));
    const auto rest = sub_.allocate_largest(5 * k_granule, waits_);
    ASSERT_TRUE(rest.has_value());
    EXPECT_EQ(rest->data, ten.data);
    EXPECT_EQ(rest->size_bytes, 5 * k_granule);
}

TEST_F(sub_allocator_test, a_removed_region_reports_its_tickets_and_its_number_returns) {
    const uint32_t first = sub_.add_region(at(k_base), 10 * k_granule);
    const uint32_t second = sub_.add_region(at(k_base + 100 * k_granule), 20 * k_granule);
    const auto a = take(10);
    const auto b = take(12);
    EXPECT_FALSE(sub_.region_idle(first));
    EXPECT_FALSE(sub_.region_idle(second));
    sub_.free(b.segment, one_ticket(3));
    sub_.free(a.segment, one_ticket(4));
    EXPECT_TRUE(sub_.region_idle(second));
    waits_.clear();
    sub_.remove_region(second, waits_);
    EXPECT_THAT(waited(), ElementsAre(3));
    EXPECT_EQ(sub_.total_bytes(), 10 * k_granule);
    EXPECT_EQ(sub_.free_bytes(), 10 * k_granule);
    EXPECT_FALSE(sub_.allocate(11 * k_granule, fit_rule::best, waits_).has_value());
    EXPECT_EQ(sub_.add_region(at(k_base + 200 * k_granule), 5 * k_granule), second);
}

TEST_F(sub_allocator_test, an_idle_region_starts_again_behind_its_last_point) {
    sub_.add_region(at(k_base), 60 * k_granule);
    const auto fresh = take(7);
    const auto next = take(5);
    const auto third = take(30);
    sub_.restart_idle_regions();  // it is not idle
    EXPECT_EQ(sub_.free_bytes(), 18 * k_granule);
    sub_.free(next.segment, one_ticket(2));
    sub_.free(fresh.segment, one_ticket(9));
    sub_.free(third.segment, one_ticket(4));
    sub_.restart_idle_regions();
    EXPECT_EQ(sub_.free_bytes(), 60 * k_granule);
    const auto again = take(7);
    EXPECT_EQ(again.data, fresh.data) << "as in a region that was never used";
    EXPECT_THAT(waited(), ElementsAre(9));
    EXPECT_EQ(take(5).data, next.data);
    const auto rest = take(48);
    EXPECT_EQ(rest.size_bytes, 48 * k_granule);
    EXPECT_EQ(sub_.free_bytes(), 0U);
}

TEST_F(sub_allocator_test, bytes_freed_behind_different_timelines_stay_apart) {
    sub_.add_region(at(k_base), 10 * k_granule);
    const auto slow = take(5);
    const auto fast = take(5);
    ticket_set behind;
    ticket elsewhere;
    elsewhere.timeline = 3;
    elsewhere.sequence = 1;
    ASSERT_TRUE(behind.add(elsewhere));
    sub_.free(slow.segment, behind);
    sub_.free(fast.segment, one_ticket(2));
    sub_.restart_idle_regions();
    static_cast<void>(take(5));
    EXPECT_EQ(waits_.size(), 1U) << "a reader that is late holds back its own bytes alone";
}

using sub_allocator_death_test = sub_allocator_test;

TEST_F(sub_allocator_death_test, misuse_stops_the_program) {
    sub_.add_region(at(k_base), 10 * k_granule);
    const auto piece = take(4);
    EXPECT_DEATH(sub_.remove_region(0, waits_), "region_idle");
    sub_.free(piece.segment, {});
    EXPECT_DEATH(sub_.free(piece.segment, {}), "in_use");
    EXPECT_DEATH(static_cast<void>(sub_.allocate(0, fit_rule::best, waits_)), "size_bytes");
    EXPECT_DEATH(sub_.add_region(at(k_base + 1), 10 * k_granule), "granule");
}

}  // namespace
}  // namespace ebb
