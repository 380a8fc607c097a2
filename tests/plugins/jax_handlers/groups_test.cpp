// How long what was offloaded lives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>
#include <memory>
#include <vector>

#include "jax_groups.hpp"

namespace ebb_jax::test {
namespace {

class group_life : public ::testing::Test {
protected:
    group_life() {
        auto home = std::make_shared<place>();
        home->key = k_home;
        all_.open_place(std::move(home));
    }
    // Each its own of the program.
    const call_attributes &call(std::uint64_t reloads = 1, std::int64_t site = 1) {
        call_attributes &said = said_.emplace_back();
        said.site = site;
        said.reloads = reloads;
        return said;
    }
    std::uint64_t offload(std::int64_t run, std::uint64_t reloads = 1, std::int64_t site = 1) {
        return offload(run, call(reloads, site));
    }
    std::uint64_t offload(std::int64_t run, const call_attributes &said) {
        groups::begun begun = all_.begin(k_home, said, 0, run, 100);
        first_of_step_ = begun.first_of_step;
        begun.made->is_whole = true;
        return begun.made->handle;
    }
    void reloaded(std::uint64_t handle, std::int64_t run) { EXPECT_NE(all_.find_to_reload(handle, run), nullptr); }
    bool lives(std::uint64_t handle) { return all_.find(handle) != nullptr; }

    static constexpr place_key k_home{};
    std::list<call_attributes> said_;
    groups all_;
    bool first_of_step_ = false;
};

TEST_F(group_life, ends_when_a_run_begins_after_its_last_reload) {
    const std::uint64_t one = offload(1);
    EXPECT_TRUE(first_of_step_);
    reloaded(one, 1);
    EXPECT_TRUE(lives(one));
    offload(1);
    EXPECT_FALSE(first_of_step_);
    EXPECT_TRUE(lives(one));
    offload(2, 1, 2);  // any site of the device
    EXPECT_FALSE(lives(one));
    EXPECT_FALSE(first_of_step_);  // the other one had no reload yet
}

// Micro-batches in a loop of one program: what a layer moved ends when the next micro-batch comes to it.
TEST_F(group_life, ends_when_its_run_makes_the_same_call_again_after_its_last_reload) {
    const call_attributes &layer = call(), &last_layer = call(1, 2);
    for (int micro_batch = 0; micro_batch < 5; ++micro_batch) {
        std::vector<std::uint64_t> moved;
        for (int i = 0; i < 3; ++i) {
            moved.push_back(offload(1, layer));
        }
        moved.push_back(offload(1, last_layer));
        EXPECT_EQ(all_.live_count(), 4U);
        for (std::size_t i = 4; i-- > 0;) {
            EXPECT_TRUE(lives(moved[i]));
            reloaded(moved[i], 1);
            EXPECT_TRUE(lives(moved[i]));  // perhaps it is called in a loop
        }
    }
}

TEST_F(group_life, another_call_or_another_run_does_not_end_it_in_its_run) {
    const call_attributes &first = call(), &other = call();  // of one site
    const std::uint64_t left = offload(1, first);
    offload(2, other);
    const std::uint64_t one = offload(2, first);
    reloaded(one, 2);
    offload(2, other);
    offload(1, first);
    EXPECT_TRUE(lives(one));
    EXPECT_TRUE(lives(left));
    offload(2, first);
    EXPECT_FALSE(lives(one));
    EXPECT_TRUE(lives(left));  // had no reload
}

TEST_F(group_life, with_a_reload_that_failed_is_not_ended_by_the_same_call) {
    const call_attributes &said = call();
    const std::uint64_t one = offload(1, said), other = offload(1, said);
    reloaded(other, 1);
    all_.not_reloaded(*all_.find_to_reload(one, 1), 1);
    offload(1, said);
    EXPECT_TRUE(lives(one));
    EXPECT_FALSE(lives(other));
    reloaded(one, 1);
    offload(1, said);
    EXPECT_FALSE(lives(one));
}

// The backward of what a loop calls again is called in a loop of its own.
TEST_F(group_life, a_reload_that_came_too_late_is_the_last_that_does) {
    const call_attributes &said = call();
    const std::uint64_t one = offload(1, said);
    reloaded(one, 1);
    offload(1, said);
    EXPECT_EQ(all_.find_to_reload(one, 1), nullptr);
    EXPECT_THAT(all_.why_gone(one), ::testing::HasSubstr("From the next run on that is known"));
    const std::uint64_t next = offload(2, said);
    reloaded(next, 2);
    offload(2, said);
    reloaded(next, 2);
    EXPECT_TRUE(lives(next));
}

TEST_F(group_life, waits_for_as_many_reloads_as_the_program_has) {
    const std::uint64_t one = offload(1, 2);
    reloaded(one, 1);
    offload(2, 2);
    EXPECT_TRUE(lives(one));
    reloaded(one, 1);  // the runs overlap
    offload(3, 2);
    EXPECT_FALSE(lives(one));
}

TEST_F(group_life, of_a_site_with_loops_waits_for_later_runs) {
    const std::uint64_t one = offload(1);
    reloaded(one, 1);
    reloaded(one, 1);
    const std::uint64_t other = offload(2);
    reloaded(other, 2);  // as many as the program has: perhaps not the last
    EXPECT_TRUE(lives(one));
    offload(3);
    EXPECT_FALSE(lives(one));
    EXPECT_TRUE(lives(other));
    offload(4);
    EXPECT_FALSE(lives(other));
}

TEST_F(group_life, what_another_program_reloads_stays) {
    const std::uint64_t one = offload(1, 0);
    for (std::int64_t run = 2; run < 200; run += 2) {
        offload(run, 0);
        reloaded(one, run + 1);
    }
    EXPECT_TRUE(lives(one));
}

TEST_F(group_life, what_an_exception_left_behind_ends_when_its_run_must_be_over) {
    const std::uint64_t left = offload(1);
    std::int64_t run = 2;
    for (; run < 33; ++run) {
        reloaded(offload(run), run);
        EXPECT_TRUE(lives(left)) << run;
    }
    reloaded(offload(run), run);
    offload(run + 1);
    EXPECT_FALSE(lives(left));
}

TEST_F(group_life, runs_that_take_turns_are_two_runs) {
    const std::uint64_t left = offload(1);
    for (int i = 0; i < 100; ++i) {
        reloaded(offload(2), 2);
        reloaded(offload(3), 3);
    }
    EXPECT_TRUE(lives(left));
}

TEST_F(group_life, the_oldest_goes_first_at_the_cap) {
    all_.set_cap(250);
    std::vector<std::uint64_t> all;
    for (std::int64_t run = 1; run <= 6; ++run) {
        all.push_back(offload(run, 0));
    }
    EXPECT_FALSE(lives(all[2]));
    EXPECT_TRUE(lives(all[3]));  // two of 100 bytes are left behind, and one is of the newest run
    EXPECT_TRUE(lives(all[4]));
    EXPECT_TRUE(lives(all[5]));
    EXPECT_EQ(all_.live_bytes(), 300U);
}

TEST_F(group_life, says_why_it_is_gone) {
    const std::uint64_t one = offload(1);
    EXPECT_EQ(all_.release_all("the test said so"), 1U);
    EXPECT_EQ(all_.find(one), nullptr);
    EXPECT_STREQ(all_.why_gone(one), "the test said so");
    EXPECT_STREQ(all_.why_gone(one + 1), "this process never offloaded it");
    EXPECT_STREQ(all_.why_gone(0), "this process never offloaded it");
    for (std::int64_t run = 2; run < 5000; ++run) {
        reloaded(offload(run), run);
    }
    EXPECT_EQ(all_.find(one), nullptr);
    EXPECT_STREQ(all_.why_gone(one), "it ended long ago");
}

TEST_F(group_life, a_reload_that_failed_does_not_count) {
    const std::uint64_t one = offload(1);
    all_.not_reloaded(*all_.find_to_reload(one, 1), 1);
    offload(2);
    EXPECT_TRUE(lives(one));
}

TEST_F(group_life, goes_on_while_a_call_uses_it) {
    const std::uint64_t one = offload(1);
    used_group used = all_.find(one);
    EXPECT_EQ(all_.release_all("the test said so"), 1U);
    EXPECT_EQ(all_.live_count(), 0U);
    EXPECT_FALSE(lives(one));
    EXPECT_NE(used->home, nullptr);
    const std::uint64_t other = offload(2);
    EXPECT_NE(all_.find(other).get(), used.get());
    const group *const freed = used.get();
    used = nullptr;
    const std::uint64_t third = offload(3);
    EXPECT_EQ(all_.find(third).get(), freed);
    EXPECT_NE(third, one);
    EXPECT_FALSE(lives(one));
    EXPECT_STREQ(all_.why_gone(one), "the test said so");
}

TEST_F(group_life, a_place_goes_with_the_last_call_that_uses_it) {
    offload(1);
    const std::uint64_t other = offload(1);
    all_.end_one(offload(1), "the test said so");
    const std::weak_ptr<place> home = all_.places().front();
    used_group used = all_.find(other);
    all_.close("the test said so");
    EXPECT_FALSE(home.expired());
    used = nullptr;
    EXPECT_TRUE(home.expired());
}

TEST_F(group_life, what_was_not_offloaded_whole_leaves_nothing) {
    call_attributes said;
    groups::begun begun = all_.begin(k_home, said, 0, 1, 100);
    const std::uint64_t broken = begun.made->handle;
    EXPECT_EQ(all_.live_bytes(), 100U);
    begun.made = nullptr;
    EXPECT_EQ(all_.live_count(), 0U);
    EXPECT_EQ(all_.live_bytes(), 0U);
    EXPECT_STREQ(all_.why_gone(broken), "not all of it was offloaded");
    EXPECT_EQ(all_.begin({nullptr, 1, false}, said, 0, 1, 100).made, nullptr);  // no such place
    const std::uint64_t one = offload(1);
    EXPECT_TRUE(lives(one));
    all_.close("the test said so");
    EXPECT_STREQ(all_.why_gone(one), "the test said so");
    EXPECT_TRUE(all_.places().empty());
}

}  // namespace
}  // namespace ebb_jax::test
