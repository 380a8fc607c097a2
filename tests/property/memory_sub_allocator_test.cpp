// The sub-allocator against a model that knows every granule: who holds it, and behind which ticket and when it was
// freed. Everything that the model can predict is compared: tickets, ends, the oldest range, what is left.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "memory/sub_allocator.hpp"
#include "support/one_ticket.hpp"

namespace ebb {
namespace {

constexpr uint64_t k_granule = 512;
constexpr uint64_t k_region_stride = 1ULL << 30U;

struct granule_model {
    bool in_use = false;
    uint64_t sequence = 0;  // of the ticket it was freed with; 0: fresh
    uint64_t age = 0;
};

struct run_model {
    uint64_t first = 0, size = 0, age_below = 0, age_above = 0;
};

struct region_model {
    std::vector<granule_model> granules;
    uint32_t number = 0;

    [[nodiscard]] std::vector<run_model> runs() const {
        std::vector<run_model> all;
        for (uint64_t i = 0; i < granules.size(); ++i) {
            if (granules[i].in_use) {
                continue;
            }
            if (i == 0 || granules[i - 1].in_use) {
                all.push_back({i, 0, granules[i].age, 0});
            }
            ++all.back().size;
            all.back().age_above = granules[i].age;
        }
        return all;
    }
};

struct block_model {
    sub_allocator::segment_id segment;
    size_t region;
    uint64_t first, size;
};

class world {
public:
    explicit world(uint64_t seed) : random_(seed) {
        const size_t regions = 1 + random_() % 4;
        for (size_t i = 0; i < regions; ++i) {
            add_region(1 + random_() % 400);
        }
    }

    void run(int rounds) {
        for (int round = 0; round < rounds && !::testing::Test::HasFatalFailure(); ++round) {
            const uint64_t choice = random_() % 100;
            if (choice < 52) {
                allocate();
            } else if (choice < 97) {
                free_one();
            } else {
                replace_idle_region();
            }
            check_totals();
        }
        while (!blocks_.empty()) {
            free_one();
        }
        check_everything_merged();
    }

    [[nodiscard]] const std::vector<uint64_t> &log() const { return log_; }

private:
    void add_region(uint64_t granules) {
        region_model region;
        region.granules.resize(granules);
        for (granule_model &granule : region.granules) {
            granule.age = clock_ + 1;
        }
        ++clock_;
        // The number is the caller's to remember; addresses follow from it and lie side by side for every second.
        const size_t slot = regions_.size();
        region.number = sub_.add_region(base(slot), granules * k_granule);
        regions_.push_back(region);
    }

    static std::byte *base(size_t slot) { return reinterpret_cast<std::byte *>((slot + 1) * k_region_stride); }

    void allocate() {
        const uint64_t granules = 1 + random_() % (random_() % 4 == 0 ? 200 : 20);
        const uint64_t size_bytes = granules * k_granule - random_() % k_granule;
        const uint64_t kind = random_() % 8;
        const fit_rule rule = kind < 4 ? fit_rule::best : fit_rule::oldest;
        waits_.clear();
        const auto piece =
            kind == 7 ? sub_.allocate_largest(size_bytes, waits_) : sub_.allocate(size_bytes, rule, waits_);
        const uint64_t largest = largest_run();
        ASSERT_EQ(piece.has_value(), kind == 7 ? largest > 0 : largest >= granules);
        if (!piece) {
            return;
        }
        if (kind == 7) {
            ASSERT_LE(piece->size_bytes, granules * k_granule);
            // To within a class, 1/32.
            ASSERT_GE(piece->size_bytes + largest * k_granule / 32, std::min(granules, largest) * k_granule);
        } else {
            ASSERT_EQ(piece->size_bytes, granules * k_granule);
        }
        place(*piece, rule == fit_rule::oldest && kind != 7);
    }

    void place(const sub_allocator::piece &piece, bool oldest) {
        const auto address = reinterpret_cast<uint64_t>(piece.data);
        const size_t slot = address / k_region_stride - 1;
        const uint64_t first = address % k_region_stride / k_granule;
        const uint64_t size = piece.size_bytes / k_granule;
        ASSERT_LT(slot, regions_.size());
        region_model &region = regions_[slot];
        ASSERT_LE(first + size, region.granules.size());
        check_place(slot, first, size, oldest);
        std::set<uint64_t> expected;
        for (uint64_t i = first; i < first + size; ++i) {
            ASSERT_FALSE(region.granules[i].in_use);
            region.granules[i].in_use = true;
            if (region.granules[i].sequence != 0) {
                expected.insert(region.granules[i].sequence);
            }
        }
        std::multiset<uint64_t> reported;
        for (const ticket &t : waits_) {
            reported.insert(t.sequence);
        }
        ASSERT_EQ(reported, std::multiset<uint64_t>(expected.begin(), expected.end()));
        blocks_.push_back({piece.segment, slot, first, size});
        log_.push_back(address);
    }

    // The block lies at the older end of its run; under the rule `oldest` that run has the oldest end of all that fit.
    void check_place(size_t slot, uint64_t first, uint64_t size, bool oldest) {
        bool found = false;
        uint64_t chosen_age = 0;
        uint64_t oldest_age = ~uint64_t{0};
        for (size_t i = 0; i < regions_.size(); ++i) {
            for (const run_model &run : regions_[i].runs()) {
                if (run.size >= size) {
                    oldest_age = std::min({oldest_age, run.age_below, run.age_above});
                }
                if (i == slot && first >= run.first && first + size <= run.first + run.size) {
                    found = true;
                    chosen_age = std::min(run.age_below, run.age_above);
                    const bool from_below = run.age_below <= run.age_above;
                    ASSERT_EQ(first, from_below ? run.first : run.first + run.size - size);
                }
            }
        }
        ASSERT_TRUE(found);
        if (oldest) {
            ASSERT_EQ(chosen_age, oldest_age);
        }
    }

    void free_one() {
        if (blocks_.empty()) {
            return;
        }
        const size_t at = random_() % blocks_.size();
        const block_model block = blocks_[at];
        blocks_[at] = blocks_.back();
        blocks_.pop_back();
        ++sequence_;
        ++clock_;
        sub_.free(block.segment, one_ticket(sequence_));
        for (uint64_t i = block.first; i < block.first + block.size; ++i) {
            regions_[block.region].granules[i] = {false, sequence_, clock_};
        }
    }

    void replace_idle_region() {
        for (size_t slot = 0; slot < regions_.size(); ++slot) {
            region_model &region = regions_[slot];
            const bool idle = std::none_of(region.granules.begin(), region.granules.end(),
                                           [](const granule_model &granule) { return granule.in_use; });
            ASSERT_EQ(sub_.region_idle(region.number), idle);
            if (!idle) {
                continue;
            }
            std::set<uint64_t> expected;
            for (const granule_model &granule : region.granules) {
                expected.insert(granule.sequence);
            }
            expected.erase(0);
            waits_.clear();
            sub_.remove_region(region.number, waits_);
            std::set<uint64_t> reported;
            for (const ticket &t : waits_) {
                reported.insert(t.sequence);
            }
            ASSERT_EQ(reported, expected);
            const uint64_t granules = 1 + random_() % 400;
            region.number = sub_.add_region(base(slot), granules * k_granule);
            ++clock_;
            region.granules.assign(granules, {false, 0, clock_});
            return;
        }
    }

    [[nodiscard]] uint64_t largest_run() const {
        uint64_t largest = 0;
        for (const region_model &region : regions_) {
            for (const run_model &run : region.runs()) {
                largest = std::max(largest, run.size);
            }
        }
        return largest;
    }

    void check_totals() {
        uint64_t total = 0;
        uint64_t free = 0;
        for (const region_model &region : regions_) {
            total += region.granules.size();
            for (const granule_model &granule : region.granules) {
                free += granule.in_use ? 0 : 1;
            }
        }
        ASSERT_EQ(sub_.total_bytes(), total * k_granule);
        ASSERT_EQ(sub_.free_bytes(), free * k_granule);
        // Found with one look at the highest class that has a run, where everything larger would be.
        ASSERT_EQ(sub_.largest_free_bytes(), largest_run() * k_granule);
    }

    // Each region is one range again: it can be taken whole, and all of them at once.
    void check_everything_merged() {
        std::vector<uint64_t> sizes;
        for (const region_model &region : regions_) {
            sizes.push_back(region.granules.size());
        }
        std::sort(sizes.rbegin(), sizes.rend());
        for (const uint64_t size : sizes) {
            waits_.clear();
            const auto piece = sub_.allocate(size * k_granule, fit_rule::best, waits_);
            ASSERT_TRUE(piece.has_value());
            place(*piece, false);
        }
        ASSERT_EQ(sub_.free_bytes(), 0U);
    }

    std::mt19937_64 random_;
    sub_allocator sub_{k_granule};
    std::vector<region_model> regions_;
    std::vector<block_model> blocks_;
    std::vector<ticket> waits_;
    std::vector<uint64_t> log_;
    uint64_t sequence_ = 0;
    uint64_t clock_ = 0;
};

TEST(memory_sub_allocator, agrees_with_a_model_of_every_granule) {
    for (uint64_t seed = 0; seed < 300; ++seed) {
        SCOPED_TRACE(seed);
        world w(seed);
        w.run(400);
        if (::testing::Test::HasFatalFailure()) {
            return;
        }
    }
}

TEST(memory_sub_allocator, the_same_calls_give_the_same_addresses) {
    for (uint64_t seed = 1000; seed < 1020; ++seed) {
        world first(seed);
        world second(seed);
        first.run(300);
        second.run(300);
        EXPECT_GT(first.log().size(), 100U);
        EXPECT_EQ(first.log(), second.log());
    }
}

}  // namespace
}  // namespace ebb
