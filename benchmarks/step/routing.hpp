// Which experts each token goes to. A router's choice is known on the device alone; here it is drawn beforehand, as
// skewed as a router's, so that the host knows the sizes of the products. A few tables are drawn, and every layer of
// every step takes one of them: how many tokens an expert gets, and how large the activations are, changes from step to
// step within a bound. A token's slots are its choices; a slot beyond an expert's capacity has no row and counts
// nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "step_shape.hpp"

namespace step {

// Rows are in the order of their experts, and within one in that of their tokens.
struct routing {
    std::vector<int64_t> first_row;       // by expert, and one beyond
    std::vector<int32_t> expert_of_slot;  // [tokens, top_k]
    std::vector<int32_t> row_of_slot;     // -1: none
    std::vector<int32_t> token_of_row;
    std::vector<int32_t> slot_of_row;

    [[nodiscard]] int64_t rows() const { return first_row.back(); }
};

[[nodiscard]] routing draw_routing(const step_shape &shape, uint64_t seed);

// Where a table lies on the device.
struct device_routing {
    std::vector<int64_t> first_row;
    const int32_t *expert_of_slot = nullptr;
    const int32_t *row_of_slot = nullptr;
    const int32_t *token_of_row = nullptr;
    const int32_t *slot_of_row = nullptr;

    [[nodiscard]] int64_t rows() const { return first_row.back(); }
};

class step_device;

class routing_tables {
public:
    // Empty for a dense model.
    routing_tables(step_device &device, const step_shape &shape, uint64_t seed);

    // Null for a dense model.
    [[nodiscard]] const device_routing *of(int64_t step, int64_t micro_batch, int64_t layer) const;

private:
    uint64_t seed_;
    std::vector<device_routing> tables_;
    std::shared_ptr<void> memory_;
};

}  // namespace step
