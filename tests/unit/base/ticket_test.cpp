#include "base/ticket.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace ebb {
namespace {

ticket at(uint64_t timeline, uint64_t sequence) {
    ticket t;
    t.timeline = static_cast<uint16_t>(timeline);
    t.sequence = sequence & 0xFFFF'FFFF'FFFFU;
    return t;
}

TEST(ticket_set, keeps_the_latest_point_of_each_timeline) {
    ticket_set set;
    EXPECT_TRUE(set.empty());
    EXPECT_TRUE(set.add(at(1, 5)));
    EXPECT_TRUE(set.add(at(2, 1)));
    EXPECT_TRUE(set.add(at(1, 9)));
    EXPECT_TRUE(set.add(at(1, 4)));
    const std::vector<ticket> held(set.begin(), set.end());
    EXPECT_EQ(held, (std::vector<ticket>{at(1, 9), at(2, 1)}));
}

TEST(ticket_set, an_empty_ticket_adds_nothing) {
    ticket_set set;
    EXPECT_TRUE(set.add(ticket{}));
    EXPECT_TRUE(set.empty());
}

TEST(ticket_set, says_when_it_is_full_and_still_takes_known_timelines) {
    ticket_set set;
    for (uint64_t i = 0; i < ticket_set::k_capacity; ++i) {
        EXPECT_TRUE(set.add(at(i, 1)));
    }
    EXPECT_FALSE(set.add(at(ticket_set::k_capacity, 1)));
    EXPECT_TRUE(set.add(at(0, 2)));
    EXPECT_EQ(set.size(), ticket_set::k_capacity);
    set.clear();
    EXPECT_TRUE(set.empty());
}

TEST(check_death, a_broken_invariant_stops_the_program_and_names_itself) {
    EXPECT_DEATH(EBB_CHECK(1 + 1 == 3), "broken invariant: 1 \\+ 1 == 3");
}

}  // namespace
}  // namespace ebb
