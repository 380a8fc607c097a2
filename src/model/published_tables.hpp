// The two tables of host offloading that this project has to explain, as published: figures, no results of ours.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ebb {

constexpr std::string_view k_published_source =
    "NVIDIA technical blog, 2026-07-10, \"Reducing High-Bandwidth Memory Bottlenecks in JAX-Based LLM Training with "
    "Host "
    "Offloading\": MaxText on 128 GB200, per device";
constexpr std::string_view k_published_machine = "gb200-nvl72";

// What becomes of the tensors that the workload saves.
enum class published_placement : uint8_t { offload, recompute, keep };
[[nodiscard]] std::string_view published_placement_name(published_placement placement) noexcept;

struct published_row {
    uint32_t table = 0;
    uint32_t row = 0;
    std::string_view model;
    published_placement placement = published_placement::offload;
    bool lhs = false;  // XLA's latency hiding scheduler
    bool pipelined = false;
    uint64_t micro_batch = 0;
    uint64_t global_batch = 0;
    // Zero where the run was out of memory.
    double tflops = 0;
    double peak_gib = 0;
    double host_gib = 0;
    bool fitted = false;  // our rates are taken from this row
};

[[nodiscard]] const std::vector<published_row> &published_rows();
[[nodiscard]] const published_row &published_row_of(uint32_t table, uint32_t row);

}  // namespace ebb
