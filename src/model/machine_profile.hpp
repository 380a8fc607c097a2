// What a machine can do, read from a file in which every number says where it is from (profiles/machines,
// docs/profiles.md). One GPU and its share of a host.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "device/sim/sim_machine.hpp"
#include "schedule/plan.hpp"

namespace ebb {

enum class source_kind : uint8_t {
    measured,
    vendor,
    assumed,  // by us, for want of either; the text says from what
};
[[nodiscard]] std::string_view source_kind_name(source_kind kind) noexcept;

template <class T>
struct sourced {
    T value{};
    source_kind kind = source_kind::assumed;
    std::string source;
};

// Of matrix operands. fp8 and fp4 come with scales of their own.
enum class number_format : uint8_t { bf16, fp8, fp4 };
constexpr size_t k_number_formats = 3;
[[nodiscard]] std::string_view number_format_name(number_format format) noexcept;
// Of one number, scales of blocks of 16 included.
[[nodiscard]] double number_format_bytes(number_format format) noexcept;

struct link_profile {
    sourced<double> bytes_per_second;       // this direction alone
    sourced<double> both_bytes_per_second;  // while the other direction is busy too
    sourced<double> latency_ns;             // of each copy
    sourced<std::vector<sim_link::point>> curve;
};

struct machine_profile {
    std::string name;
    std::string title;
    std::vector<std::string> notes;

    sourced<uint64_t> device_bytes;
    sourced<double> hbm_bytes_per_second;
    sourced<double> hbm_reached;                                              // fraction of it, by memory-bound kernels
    std::array<std::optional<sourced<double>>, k_number_formats> peak_flops;  // dense; none: the machine cannot
    sourced<double> flops_reached;  // fraction of it, by large matrix products

    link_profile d2h;
    link_profile h2d;
    sourced<bool> half_duplex;

    sourced<uint64_t> host_bytes;  // of one host memory (a CPU, a NUMA node)
    sourced<double> pinnable;      // fraction of it
    sourced<uint64_t> gpus_per_host_memory;
    sourced<double> host_dram_bytes_per_second;
    sourced<double> host_call_ns;  // of the CPU, to enqueue one operation

    sourced<double> collective_bytes_per_second;  // that a GPU receives, or sends, in all-gather and reduce-scatter
    sourced<double> collective_loss;              // fraction of it, while a copy to host memory runs
};

// `called` is how messages name the text: a file's path.
[[nodiscard]] result<machine_profile> parse_machine_profile(std::string_view text, std::string called);

[[nodiscard]] sim_machine to_sim_machine(const machine_profile &profile);

struct machine_links {
    plan_link d2h;
    plan_link h2d;
};
// Rates for copies in chunks of that size, each direction alone. `shared_host`: all GPUs below one host memory copy at
// once, and none gets more than its share of that memory's rate.
[[nodiscard]] machine_links to_plan_links(const machine_profile &profile, uint64_t chunk_bytes,
                                          bool shared_host = true);

// Host memory that one GPU may pin.
[[nodiscard]] uint64_t pinnable_bytes(const machine_profile &profile) noexcept;

}  // namespace ebb
