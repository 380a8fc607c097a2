#include "settings.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "command_options.hpp"
#include "modes.hpp"

namespace train {
namespace {

uint64_t bytes_of(int64_t elements) {
    return static_cast<uint64_t>(elements) * sizeof(float);
}

std::string complaint(const settings &s) {
    if (const std::string why = complaint_about_heads(s.shape); !why.empty()) {
        return why;
    }
    const auto layers = static_cast<double>(s.shape.layers);
    const auto width = static_cast<double>(s.shape.width);
    const auto ffn = static_cast<double>(s.shape.ffn);
    const double saved = 4.0 * layers * static_cast<double>(s.shape.tokens()) *
                         (6.0 * width + 2.0 * ffn + static_cast<double>(s.shape.heads));
    return complaint_about_memory(s.offload, {saved, 16.0 * layers * width * (4.0 * width + 3.0 * ffn)});
}

}  // namespace

// By default eight layers save 280 MiB per micro batch, and computing them takes about half a second: few
// floating-point operations per byte saved, so that moving the bytes is what the comparison shows.
settings::settings() {
    shape = {8, 128, 4, 512, 512, 10};
    accumulation = 2;
    steps = 6;
    offload.device_bytes = 448ULL << 20U;
    offload.d2h_bytes_per_second = 3'000'000'000;
    offload.h2d_bytes_per_second = 3'000'000'000;
}

saved_sizes saved_by(const model_shape &shape) {
    saved_sizes saved;
    saved.layer_bytes = bytes_of(6 * shape.hidden_elements() + 2 * shape.ffn_elements() + shape.row_sum_elements());
    saved.micro_batch_bytes = static_cast<uint64_t>(shape.layers) * saved.layer_bytes;
    saved.largest_bytes = bytes_of(std::max(shape.hidden_elements(), shape.ffn_elements()));
    return saved;
}

parsed parse_command_line(int argc, char **argv) {
    parsed result;
    settings &s = result.values;
    CLI::App app(
        "Trains a small decoder-only transformer on text and compares ways to keep its activations:\n"
        "on the device, computed again, or offloaded to host memory by Ebb. The device is Ebb's host\n"
        "device: a memory arena with a cap, a compute thread, and a link with a rate limit.",
        "train_transformer");
    app.option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    add_model_options(app, s);
    app.get_option("--large-micro-batch")
        ->description("also run keep and offload-auto at this micro batch [twice --micro-batch if no --mode is given]");
    app.add_option("--text", s.text_path, "file to train on [this project's documentation]");
    add_offload_options(app, s.offload);
    add_output_options(app, s);
    result.exit_code = parse_options(app, argc, argv, [&s] { return complaint(s); });
    if (result.exit_code) {
        return result;
    }
    if (s.modes.empty()) {
        for (const mode &m : all_modes()) {
            s.modes.emplace_back(m.name);
        }
        if (s.large_micro_batch == 0) {
            s.large_micro_batch = 2 * s.shape.micro_batch;
        }
    }
    s.warm_up_steps = std::min(s.warm_up_steps, s.steps - 1);
    return result;
}

}  // namespace train
