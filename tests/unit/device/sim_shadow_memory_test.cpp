#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "device/sim/shadow_memory.hpp"

namespace ebb {
namespace {

using state = shadow_memory::state;

std::vector<shadow_memory::range> looked(const shadow_memory &memory, uint64_t begin, uint64_t end) {
    std::vector<shadow_memory::range> found;
    memory.look(begin, end, found);
    return found;
}

TEST(sim_shadow_memory, what_was_never_set_is_no_memory) {
    const shadow_memory memory;
    const auto found = looked(memory, 100, 200);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].begin, 100U);
    EXPECT_EQ(found[0].end, 200U);
    EXPECT_EQ(found[0].holds.what, state::none);
}

TEST(sim_shadow_memory, a_part_knows_its_position_in_the_whole) {
    shadow_memory memory;
    memory.set(1000, 2000, {state::tagged, 7, 0});
    memory.set(1400, 1500, {state::undefined, 0, 0});
    const auto found = looked(memory, 1300, 1600);
    ASSERT_EQ(found.size(), 3U);
    EXPECT_EQ(found[0].holds.position_bytes, 300U);
    EXPECT_EQ(found[1].holds.what, state::undefined);
    EXPECT_EQ(found[2].begin, 1500U);
    EXPECT_EQ(found[2].holds.position_bytes, 500U);
    EXPECT_EQ(found[2].holds.tag, 7U);
}

TEST(sim_shadow_memory, chunks_that_follow_each_other_become_one_range) {
    shadow_memory memory;
    for (const uint64_t chunk : {2U, 0U, 1U, 3U}) {
        memory.set(chunk * 100, chunk * 100 + 100, {state::tagged, 7, chunk * 100});
    }
    EXPECT_EQ(memory.ranges(), 1U);
    memory.set(400, 500, {state::tagged, 7, 0});  // the same tag, from its begin: no continuation
    EXPECT_EQ(memory.ranges(), 2U);
}

// Against one entry per byte.
TEST(sim_shadow_memory, agrees_with_an_array_of_bytes) {
    std::mt19937_64 random(1);
    for (int world = 0; world < 50; ++world) {
        shadow_memory memory;
        std::array<shadow_memory::content, 64> bytes{};
        for (int step = 0; step < 60; ++step) {
            const uint64_t begin = random() % 64;
            const uint64_t end = begin + random() % (65 - begin);
            const auto what = static_cast<state>(random() % 4);
            const bool tagged = what == state::tagged;
            const shadow_memory::content holds{what, what == state::none ? 0 : random() % 3, tagged ? random() % 3 : 0};
            memory.set(begin, end, holds);
            for (uint64_t at = begin; at < end; ++at) {
                bytes[at] = holds;
                bytes[at].position_bytes += tagged ? at - begin : 0;
            }
            uint64_t next = 0;
            for (const shadow_memory::range &r : looked(memory, 0, 64)) {
                ASSERT_EQ(r.begin, next);
                for (; next < r.end; ++next) {
                    ASSERT_EQ(bytes[next].what, r.holds.what);
                    ASSERT_EQ(bytes[next].tag, r.holds.tag);
                    const bool positioned = r.holds.what == state::tagged;
                    ASSERT_EQ(bytes[next].position_bytes, r.holds.position_bytes + (positioned ? next - r.begin : 0));
                }
            }
            ASSERT_EQ(next, 64U);
        }
    }
}

}  // namespace
}  // namespace ebb
