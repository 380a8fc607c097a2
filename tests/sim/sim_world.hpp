// What a training run on the simulated device is made of, all of it drawn from a seed: the shape of its steps, its
// tensors, the options of the runtime and the pace of the host.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "device/sim/sim_machine.hpp"
#include "memory/staging.hpp"
#include "runtime/runtime.hpp"
#include "step_shapes.hpp"

namespace ebb::test {

struct sim_tensor {
    uint64_t size_bytes = 0;
    uint64_t shift_bytes = 0;     // its address modulo 512
    bool two_producers = false;   // a stream for each half
    bool thread_is_home = false;  // its memory goes back to the host, not to a stream's pool
    bool has_view = false;        // a part of it is saved again under the same storage
    bool recomputed = false;
    bool may_be_recomputed = false;  // by the plan's choice
    uint64_t recompute_ns = 0;
    bool from_the_one_before = false;  // which recomputing reads
    bool staged = false;               // copied through the runtime's own memory
    bool kept = false;
    bool used_beside = false;  // a second stream reads it, too
    bool read_beside = false;  // the second stream is the only one that reads it
    bool read_twice = false;
};

enum class sim_memory : uint8_t { own_block, lent_block, lent_allocator };

struct sim_world {
    sim_machine machine;
    runtime_options core;
    sim_memory memory = sim_memory::own_block;
    uint64_t slab_bytes = 0;
    std::vector<std::vector<sim_tensor>> layers;
    std::vector<pass> order;
    std::vector<pass> other_order;  // of a step with another number of micro-batches
    uint64_t steps = 5;
    bool collectives = false;  // copies are held while one is enqueued
    bool polls = false;        // calls ebb_progress now and then
    bool evaluates = false;    // one step is an evaluation
    bool skips = false;        // one step leaves a save out
    bool drops = false;        // ends activations by ebb_drop
};

class sim_world_maker {
public:
    explicit sim_world_maker(uint64_t seed) : random_(seed) {}

    sim_world make() {
        sim_world w;
        w.machine.device_bytes = 1ULL << 36U;
        w.machine.host_bytes = 1ULL << 36U;
        w.machine.host_call_ps = uint64_t{1} << (15 + below(13));  // 30 ns to 130 us
        w.machine.host_runs_ahead = !one_in(8);
        w.slab_bytes = one_in(2) ? 1ULL << 20U : 1ULL << 30U;
        make_layers(w);
        make_order(w);
        make_options(w);
        w.collectives = one_in(3);
        w.polls = one_in(3);
        w.evaluates = one_in(3);
        w.skips = one_in(3);
        w.drops = one_in(4);
        return w;
    }

private:
    uint64_t below(uint64_t count) { return random_() % count; }
    bool one_in(uint64_t count) { return below(count) == 0; }

    void make_layers(sim_world &w) {
        const uint64_t count = 1 + below(5);
        const bool plain = one_in(3);  // as uniform as a transformer's
        const uint64_t tensors = 1 + below(3);
        for (uint64_t l = 0; l < count; ++l) {
            if (plain && l != 0) {
                w.layers.push_back(w.layers.front());
                continue;
            }
            std::vector<sim_tensor> &layer = w.layers.emplace_back();
            for (uint64_t t = 0; t < tensors; ++t) {
                layer.push_back(make_tensor(plain));
            }
        }
    }
    sim_tensor make_tensor(bool plain) {
        sim_tensor t;
        t.size_bytes = plain ? 65536 : 64 * (1 + below(2048));
        if (!plain) {
            t.shift_bytes = one_in(3) ? 64 * below(8) : 0;
            t.two_producers = one_in(4);
            t.thread_is_home = one_in(8);
            t.has_view = t.size_bytes >= 1024 && !t.thread_is_home && one_in(5);
            t.recomputed = !t.has_view && one_in(8);
            t.may_be_recomputed = !t.has_view && one_in(3);
            t.recompute_ns = below(1'000'000);
            t.from_the_one_before = one_in(2);
            t.staged = !t.has_view && !t.recomputed && !t.may_be_recomputed && !t.thread_is_home && one_in(8);
            t.kept = one_in(10);
            t.used_beside = one_in(5);
            t.read_beside = one_in(8);
            t.read_twice = one_in(6);
        }
        return t;
    }
    void make_order(sim_world &w) {
        const uint64_t ranks = 1 + below(3);
        const uint64_t rank = below(ranks);
        const uint64_t batches = 1 + below(4);
        switch (below(4)) {
            case 0:
                w.order = accumulation(1);
                w.other_order = accumulation(2);
                break;
            case 1:
                w.order = accumulation(batches);
                w.other_order = accumulation(batches + 1);
                break;
            case 2:
                w.order = one_forward_one_backward(batches, ranks, rank);
                w.other_order = one_forward_one_backward(batches + 1, ranks, rank);
                break;
            default: {
                const uint64_t stages = 2 + below(2);
                w.order = interleaved(ranks, ranks, rank, stages);
                w.other_order = interleaved(2 * ranks, ranks, rank, stages);
            }
        }
    }
    void make_options(sim_world &w) {
        uint64_t largest_bytes = 0;
        for (const auto &layer : w.layers) {
            for (const sim_tensor &t : layer) {
                largest_bytes = std::max(largest_bytes, t.size_bytes);
            }
        }
        runtime_options &o = w.core;
        o.min_offload_bytes = 1;
        o.lanes = static_cast<uint32_t>(1 + below(3));
        o.chunk_bytes = uint64_t{4096} << below(6);
        o.sample_every = static_cast<uint32_t>(1 + below(4));
        o.verify = one_in(6);
        o.keep_last = one_in(4) ? 1 + below(3) : 0;
        const uint64_t depths[] = {k_automatic, k_automatic, k_none_bytes, k_one_layer, 2 * largest_bytes};
        if (one_in(3)) {
            o.policy = "auto";
            w.steps = 12;  // plans are made from three steps' times
        }
        o.prefetch_bytes = depths[below(5)];
        const uint64_t caps[] = {k_automatic, k_automatic, k_none_bytes, largest_bytes};
        o.source_bytes = caps[below(4)];
        o.host_bytes = one_in(6) ? (1ULL << 20U) : 0;
        w.memory = static_cast<sim_memory>(below(3));
        const uint64_t slot_bytes = staging_slot_bytes(largest_bytes);
        const uint64_t staging_bytes = (1 + below(4)) * slot_bytes + staging::k_alignment;
        if (w.memory == sim_memory::lent_block || one_in(2)) {
            o.staging_bytes = staging_bytes;
        }
        if (one_in(2)) {
            o.max_activation_bytes = largest_bytes;
        }
        if (!one_in(3)) {
            o.device_budget_bytes = staging_bytes + slot_bytes + (1 + below(4)) * largest_bytes;
        }
    }
    static uint64_t staging_slot_bytes(uint64_t size_bytes) {
        return (size_bytes + 2 * staging::k_alignment - 1) / staging::k_alignment * staging::k_alignment;
    }

    std::mt19937_64 random_;
};

}  // namespace ebb::test
