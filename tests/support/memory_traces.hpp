// Allocation traces of one training step at published sizes: what a forward pass saves, in order, and what the
// backward pass frees. Used by the waste tests and by the arena benchmarks.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace ebb::traces {

struct operation {
    uint32_t block;       // number within the step
    uint64_t size_bytes;  // 0: free it
};

struct step {
    std::vector<operation> operations;
    uint32_t block_count = 0;

    void allocate(uint64_t size_bytes) { operations.push_back({block_count++, size_bytes}); }
    void free_all_in_reverse() {
        for (uint32_t block = block_count; block-- > 0;) {
            operations.push_back({block, 0});
        }
    }
};

constexpr uint64_t k_bf16_bytes = 2;

// Llama 3.1 405B: 126 layers, hidden 16384, 8 KV heads of 128, MLP 53248. Micro batch 2 x sequence 8192.
// Input, q, k, v, context, second residual, gate, up: 348,160 bytes per token and layer.
inline step llama_405b() {
    constexpr uint64_t k_tokens = 2 * 8192;
    step s;
    for (int layer = 0; layer < 126; ++layer) {
        for (const uint64_t width : {16384U, 16384U, 1024U, 1024U, 16384U, 16384U, 53248U, 53248U}) {
            s.allocate(width * k_tokens * k_bf16_bytes);
        }
    }
    s.free_all_in_reverse();
    return s;
}

// A uniform number in [0, 1) that is the same with every standard library.
inline double unit_random(std::mt19937_64 &random) {
    return static_cast<double>(random() >> 11U) * 0x1.0p-53;
}

// DeepSeek-V3: 61 layers, 8 x 4096 tokens, 2436 MiB a layer when routing is even: query and key/value compressed
// (1536, 576), then dense gate and up (18432 each, first three layers), or routed gate and up (8 x 2048 each) and the
// shared expert's (2048 each). Routing changes the rows of a layer's routed tensors by up to imbalance either way.
inline step deepseek_v3(std::mt19937_64 &random, double imbalance = 0.25) {
    constexpr uint64_t k_tokens = 8 * 4096;
    step s;
    for (int layer = 0; layer < 61; ++layer) {
        s.allocate(1536 * k_tokens * k_bf16_bytes);
        s.allocate(576 * k_tokens * k_bf16_bytes);
        if (layer < 3) {
            s.allocate(18432 * k_tokens * k_bf16_bytes);
            s.allocate(18432 * k_tokens * k_bf16_bytes);
            continue;
        }
        const double factor = 1.0 + imbalance * (2.0 * unit_random(random) - 1.0);
        const auto routed_rows = static_cast<uint64_t>(factor * 8.0 * static_cast<double>(k_tokens));
        s.allocate(routed_rows * 2048 * k_bf16_bytes);
        s.allocate(routed_rows * 2048 * k_bf16_bytes);
        s.allocate(2048 * k_tokens * k_bf16_bytes);
        s.allocate(2048 * k_tokens * k_bf16_bytes);
    }
    s.free_all_in_reverse();
    return s;
}

inline step equal_blocks(uint32_t count, uint64_t size_bytes) {
    step s;
    for (uint32_t i = 0; i < count; ++i) {
        s.allocate(size_bytes);
    }
    s.free_all_in_reverse();
    return s;
}

// 1.05 x 2^k bytes, k from 16 to 27, allocated and freed in random order around a steady number of live blocks.
inline step just_above_powers_of_two(std::mt19937_64 &random, uint32_t operations, size_t live_target) {
    step s;
    std::vector<uint32_t> live;
    for (uint32_t i = 0; i < operations; ++i) {
        const bool allocate = live.size() < live_target / 2 || (live.size() < live_target && random() % 2 == 0);
        if (allocate) {
            live.push_back(s.block_count);
            const auto size_bytes = static_cast<uint64_t>(1.05 * static_cast<double>(1ULL << (16 + random() % 12)));
            s.allocate(size_bytes);
        } else {
            const size_t at = random() % live.size();
            s.operations.push_back({live[at], 0});
            live[at] = live.back();
            live.pop_back();
        }
    }
    for (const uint32_t block : live) {
        s.operations.push_back({block, 0});
    }
    return s;
}

}  // namespace ebb::traces
