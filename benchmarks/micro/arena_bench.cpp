// Time per alloc + free of the pinned arena against three baselines, on the same traces in the same run, and the
// waste of each at its peak. Everything runs on reserved address space: no page is touched, so what is
// timed is bookkeeping alone.
//
// One iteration is one block (its allocation and its free); a whole step is run between two looks at the clock.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory_resource>
#include <random>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../tests/support/fake_memory_device.hpp"
#include "../../tests/support/memory_traces.hpp"
#include "../../tests/support/one_ticket.hpp"
#include "memory/pinned_arena.hpp"

namespace {

using ebb::traces::step;

// ---- The arena -----------------------------------------------------------------------------------------------

class ours {
public:
    using block = ebb::pinned_arena::block_id;

    block allocate(uint64_t size_bytes) {
        waits_.clear();
        const auto id = arena_.allocate(size_bytes, waits_);
        EBB_CHECK(id.has_value());
        benchmark::DoNotOptimize(waits_.data());
        return *id;
    }
    // As in use: every free leaves a ticket, every allocation reports those of its bytes.
    void free(block id, uint64_t) { arena_.free(id, ebb::one_ticket(++sequence_)); }

    [[nodiscard]] uint64_t mapped_peak_bytes() const { return arena_.statistics().mapped_peak_bytes; }

private:
    ebb::fake_memory_device device_;
    ebb::pinned_arena arena_{device_, {}};
    std::vector<ebb::ticket> waits_;
    uint64_t sequence_ = 0;
};

// ---- std::pmr::synchronized_pool_resource --------------------------------------------------------------------

// Where the pool's memory comes from. The pool passes requests above its largest pool block (a few MiB, so all
// of these traces) straight on and only keeps a list of them, so its upstream is made nearly free: it bumps a pointer
// through reserved address space, takes back what was handed out last, and starts over when nothing is out.
// That flatters the pool: a real upstream would have to search. The pool's own lists come from the heap.
class bump_resource final : public std::pmr::memory_resource {
public:
    [[nodiscard]] uint64_t peak_bytes() const { return peak_bytes_; }

private:
    static constexpr uint64_t k_reserved_bytes = 2ULL << 40U;
    static constexpr uint64_t k_smallest_block_bytes = 1ULL << 20U;

    void *do_allocate(size_t size_bytes, size_t alignment) override {
        if (size_bytes < k_smallest_block_bytes) {
            return std::pmr::new_delete_resource()->allocate(size_bytes, alignment);
        }
        const uint64_t start = (used_bytes_ + alignment - 1) / alignment * alignment;
        EBB_CHECK(size_bytes <= k_reserved_bytes - start);
        used_bytes_ = start + size_bytes;
        peak_bytes_ = std::max(peak_bytes_, used_bytes_);
        ++live_;
        return base_ + start;
    }
    void do_deallocate(void *data, size_t size_bytes, size_t alignment) override {
        if (size_bytes < k_smallest_block_bytes) {
            std::pmr::new_delete_resource()->deallocate(data, size_bytes, alignment);
            return;
        }
        if (--live_ == 0) {
            used_bytes_ = 0;
        } else if (static_cast<std::byte *>(data) + size_bytes == base_ + used_bytes_) {
            used_bytes_ -= size_bytes;
        }
    }
    [[nodiscard]] bool do_is_equal(const memory_resource &other) const noexcept override { return this == &other; }

    ebb::fake_memory_device device_;
    std::byte *base_ = static_cast<std::byte *>(device_.map_host(k_reserved_bytes).value());
    uint64_t used_bytes_ = 0;
    uint64_t peak_bytes_ = 0;
    uint64_t live_ = 0;
};

class pmr_pool {
public:
    using block = void *;

    block allocate(uint64_t size_bytes) { return pool_.allocate(size_bytes, k_alignment); }
    void free(block data, uint64_t size_bytes) { pool_.deallocate(data, size_bytes, k_alignment); }
    [[nodiscard]] uint64_t mapped_peak_bytes() const { return upstream_.peak_bytes(); }

private:
    static constexpr size_t k_alignment = 4096;

    bump_resource upstream_;
    std::pmr::synchronized_pool_resource pool_{&upstream_};
};

// ---- Best fit on std::map ------------------------------------------------------------------------------------

// Free ranges by address, for merging, and by size, for the search; sizes rounded to 4 KiB; grows by slabs as the
// arena does. No tickets, no extents, no lock.
class map_best_fit {
public:
    using block = std::byte *;

    block allocate(uint64_t size_bytes) {
        const uint64_t rounded_bytes = round_up(size_bytes);
        auto found = by_size_.lower_bound({rounded_bytes, nullptr});
        if (found == by_size_.end()) {
            grow(rounded_bytes);
            found = by_size_.lower_bound({rounded_bytes, nullptr});
        }
        const auto [range_bytes, data] = *found;
        by_size_.erase(found);
        by_address_.erase(data);
        if (range_bytes > rounded_bytes) {
            insert(data + rounded_bytes, range_bytes - rounded_bytes);
        }
        return data;
    }

    void free(block data, uint64_t size_bytes) {
        uint64_t range_bytes = round_up(size_bytes);
        auto above = by_address_.lower_bound(data);
        if (above != by_address_.begin()) {
            const auto below = std::prev(above);
            if (below->first + below->second == data) {
                data = below->first;
                range_bytes += below->second;
                by_size_.erase({below->second, below->first});
                by_address_.erase(below);
            }
        }
        if (above != by_address_.end() && data + range_bytes == above->first) {
            range_bytes += above->second;
            by_size_.erase({above->second, above->first});
            by_address_.erase(above);
        }
        insert(data, range_bytes);
    }
    [[nodiscard]] uint64_t mapped_peak_bytes() const { return mapped_bytes_; }

private:
    static constexpr uint64_t k_page_bytes = 4096;

    static uint64_t round_up(uint64_t bytes) { return (bytes + k_page_bytes - 1) & ~(k_page_bytes - 1); }

    void insert(std::byte *data, uint64_t size_bytes) {
        by_address_.emplace(data, size_bytes);
        by_size_.emplace(size_bytes, data);
    }
    void grow(uint64_t size_bytes) {
        const uint64_t slab_bytes =
            std::max(size_bytes, std::min(device_.info().slab_bytes, round_up(mapped_bytes_ / 16)));
        // A page between slabs, so that ranges of two slabs never merge.
        insert(static_cast<std::byte *>(device_.map_host(slab_bytes + k_page_bytes).value()), slab_bytes);
        mapped_bytes_ += slab_bytes;
    }

    ebb::fake_memory_device device_;
    std::map<std::byte *, uint64_t> by_address_;
    std::set<std::pair<uint64_t, std::byte *>> by_size_;
    uint64_t mapped_bytes_ = 0;
};

// ---- malloc --------------------------------------------------------------------------------------------------

class system_malloc {
public:
    using block = void *;

    block allocate(uint64_t size_bytes) {
        void *data = std::malloc(size_bytes);
        EBB_CHECK(data != nullptr);
        benchmark::DoNotOptimize(data);
        return data;
    }
    void free(block data, uint64_t) { std::free(data); }

    // With its header of 16 bytes: what glibc took from the system for it.
    static uint64_t held_bytes(block data) { return malloc_usable_size(data) + 16; }
};

// ---- Traces and runs -----------------------------------------------------------------------------------------

const std::vector<step> &lifo_steps() {
    static const std::vector<step> steps = {ebb::traces::llama_405b()};
    return steps;
}

const std::vector<step> &moe_steps() {
    static const std::vector<step> steps = [] {
        std::mt19937_64 random(20260710);
        std::vector<step> all;
        for (int i = 0; i < 64; ++i) {
            all.push_back(ebb::traces::deepseek_v3(random));
        }
        return all;
    }();
    return steps;
}

uint64_t peak_bytes(const std::vector<step> &steps, uint64_t (*held_bytes)(uint64_t)) {
    uint64_t peak = 0;
    for (const step &s : steps) {
        uint64_t sum = 0;
        for (const ebb::traces::operation &operation : s.operations) {
            sum += operation.size_bytes == 0 ? 0 : held_bytes(operation.size_bytes);
        }
        peak = std::max(peak, sum);  // a step allocates all before it frees
    }
    return peak;
}

double waste(uint64_t mapped_bytes, uint64_t requested_bytes) {
    return static_cast<double>(mapped_bytes - requested_bytes) / static_cast<double>(mapped_bytes);
}

template <class Pool>
class runner {
public:
    explicit runner(const std::vector<step> &steps) {
        for (const step &s : steps) {
            std::vector<uint64_t> sizes;
            for (const ebb::traces::operation &operation : s.operations) {
                if (operation.size_bytes != 0) {
                    sizes.push_back(operation.size_bytes);
                }
            }
            sizes_.push_back(std::move(sizes));
            blocks_.resize(std::max(blocks_.size(), size_t{s.block_count}));
        }
    }

    void run(const step &s, const std::vector<uint64_t> &sizes) {
        for (const ebb::traces::operation &operation : s.operations) {
            if (operation.size_bytes != 0) {
                blocks_[operation.block] = pool_.allocate(operation.size_bytes);
            } else {
                pool_.free(blocks_[operation.block], sizes[operation.block]);
            }
        }
    }
    [[nodiscard]] const std::vector<uint64_t> &sizes(size_t step) const { return sizes_[step]; }

    // Where the pool does not know what it holds, that is summed up over the live blocks of one step.
    [[nodiscard]] uint64_t mapped_peak_bytes(const std::vector<step> &steps) {
        if constexpr (std::is_same_v<Pool, system_malloc>) {
            uint64_t peak = 0;
            for (const step &s : steps) {
                uint64_t sum = 0;
                for (const ebb::traces::operation &operation : s.operations) {
                    if (operation.size_bytes != 0) {
                        blocks_[operation.block] = pool_.allocate(operation.size_bytes);
                        sum += Pool::held_bytes(blocks_[operation.block]);
                    } else {
                        pool_.free(blocks_[operation.block], 0);
                    }
                }
                peak = std::max(peak, sum);
            }
            return peak;
        } else {
            return pool_.mapped_peak_bytes();
        }
    }

private:
    Pool pool_;
    std::vector<typename Pool::block> blocks_;
    std::vector<std::vector<uint64_t>> sizes_;
};

template <class Pool>
void run_trace(benchmark::State &state, const std::vector<step> &steps) {
    runner<Pool> r(steps);
    for (int round = 0; round < 2; ++round) {  // warm: everything that will be mapped is
        for (size_t i = 0; i < steps.size(); ++i) {
            r.run(steps[i], r.sizes(i));
        }
    }
    for (size_t i = 0; state.KeepRunningBatch(steps[i].block_count); i = (i + 1) % steps.size()) {
        r.run(steps[i], r.sizes(i));
    }
    const uint64_t requested_bytes = peak_bytes(steps, [](uint64_t size_bytes) { return size_bytes; });
    const uint64_t power_of_two_bytes =
        peak_bytes(steps, [](uint64_t size_bytes) { return std::bit_ceil(size_bytes); });
    state.counters["waste"] = waste(r.mapped_peak_bytes(steps), requested_bytes);
    state.counters["waste_power_of_two"] = waste(power_of_two_bytes, requested_bytes);
}

template <class Pool>
void arena_lifo(benchmark::State &state) {
    run_trace<Pool>(state, lifo_steps());
}

template <class Pool>
void arena_moe(benchmark::State &state) {
    run_trace<Pool>(state, moe_steps());
}

BENCHMARK(arena_lifo<ours>)->Name("arena_lifo/ours");
BENCHMARK(arena_lifo<pmr_pool>)->Name("arena_lifo/pmr");
BENCHMARK(arena_lifo<map_best_fit>)->Name("arena_lifo/map");
BENCHMARK(arena_lifo<system_malloc>)->Name("arena_lifo/malloc");
BENCHMARK(arena_moe<ours>)->Name("arena_moe/ours");
BENCHMARK(arena_moe<pmr_pool>)->Name("arena_moe/pmr");
BENCHMARK(arena_moe<map_best_fit>)->Name("arena_moe/map");
BENCHMARK(arena_moe<system_malloc>)->Name("arena_moe/malloc");

}  // namespace
