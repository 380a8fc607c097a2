// The step that hot_path measures: a chain of activations, offloaded in forward order, then reloaded, returned and
// released in reverse. Sizes and names as in a transformer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ebb::bench {

struct saved_tensor {
    std::string name;
    uint64_t micro_batch;
    uint64_t size_bytes;
    std::byte *data;  // an address of its own; nothing is touched
};

inline std::vector<saved_tensor> make_step(uint64_t count) {
    constexpr uint64_t k_names = 2520;  // 126 layers of 20 tensors
    constexpr uint64_t k_mib = uint64_t{1} << 20U;
    std::vector<saved_tensor> step;
    step.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
        const uint64_t in_batch = i % k_names;
        step.push_back({"layer" + std::to_string(in_batch / 20) + "." + std::to_string(in_batch % 20), i / k_names,
                        (1 + in_batch % 7) * k_mib,
                        reinterpret_cast<std::byte *>((uint64_t{1} << 44U) + i * 8 * k_mib)});
    }
    return step;
}

constexpr uint64_t k_slots = 16;
constexpr uint64_t k_largest_bytes = uint64_t{7} << 20U;

}  // namespace ebb::bench
