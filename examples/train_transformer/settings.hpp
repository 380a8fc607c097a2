// What the command line says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model.hpp"

namespace train {

struct settings {
    // By default eight layers save 280 MiB per micro batch, and computing them takes about half a second: few
    // floating-point operations per byte saved, so that moving the bytes is what the comparison shows.
    model_shape shape{8, 128, 4, 512, 512, 10};
    int64_t large_micro_batch = 0;  // 0: twice the micro batch if all modes are run, else none
    int64_t accumulation = 2;
    int64_t steps = 6;
    int64_t warm_up_steps = 2;  // not timed: the first is recorded, in the second staging is taken
    uint64_t device_bytes = 448ULL << 20U;
    uint64_t device_budget_bytes = 0;  // 0: see modes.cpp
    uint64_t host_bytes = 0;           // 0: Ebb's default
    uint64_t floor_bytes = 1ULL << 20U;
    uint64_t d2h_bytes_per_second = 3'000'000'000;
    uint64_t h2d_bytes_per_second = 3'000'000'000;
    uint64_t seed = 1;
    double learning_rate = 1e-3;
    std::vector<std::string> modes;
    std::string text_path;
    bool json = false;
    bool verify = false;
};

// What the saved activations of one layer, of one micro batch, and the largest of them take.
uint64_t saved_bytes_per_layer(const model_shape &shape);
uint64_t saved_bytes(const model_shape &shape);
uint64_t largest_saved_bytes(const model_shape &shape);

struct parsed {
    settings values;
    std::optional<int> exit_code;  // help was printed, or the arguments are wrong and why was said
};
parsed parse_command_line(int argc, char **argv);

}  // namespace train
