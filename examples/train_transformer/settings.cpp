#include "settings.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>

#include "kernels.hpp"
#include "modes.hpp"

namespace train {
namespace {

constexpr int k_usage = 2;
// No dimension above this, so that no product of four of them overflows.
constexpr int64_t k_largest_dimension = 1 << 15;

uint64_t bytes_of(int64_t elements) {
    return static_cast<uint64_t>(elements) * sizeof(float);
}

uint64_t physical_memory_bytes() {
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page = sysconf(_SC_PAGE_SIZE);
    return pages > 0 && page > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page) : ~uint64_t{0};
}

void add_model_options(CLI::App &app, settings &s) {
    const CLI::Range dimension(int64_t{1}, k_largest_dimension);
    app.add_option("--layers", s.shape.layers, "decoder layers")->check(dimension);
    app.add_option("--width", s.shape.width, "width of the residual stream; a multiple of --heads")->check(dimension);
    app.add_option("--heads", s.shape.heads, "attention heads")->check(dimension);
    app.add_option("--ffn", s.shape.ffn, "width of the SwiGLU layer")->check(dimension);
    app.add_option("--sequence", s.shape.sequence, "tokens (bytes of text) per sequence")->check(dimension);
    app.add_option("--micro-batch", s.shape.micro_batch, "sequences per micro batch")->check(dimension);
    app.add_option("--large-micro-batch", s.large_micro_batch,
                   "also run keep and offload-auto at this micro batch (twice --micro-batch if no --mode is given)")
        ->check(dimension);
    app.add_option("--accumulation", s.accumulation, "micro batches per optimizer step")->check(dimension);
    app.add_option("--steps", s.steps, "optimizer steps; the first two are not timed if there are more")
        ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
    app.add_option("--seed", s.seed, "of the weights and of the order of the text");
    app.add_option("--lr", s.learning_rate, "learning rate")->check(CLI::Range(0.0, 1.0));
    app.add_option("--text", s.text_path, "file to train on [this project's documentation]");
}

void add_device_options(CLI::App &app, settings &s) {
    const CLI::AsSizeValue size(false);
    app.add_option("--device-memory", s.device_bytes, "memory of the device, e.g. 448MiB")->transform(size);
    app.add_option("--device-budget", s.device_budget_bytes,
                   "of it for activations in the offload modes [a quarter of what one micro batch saves]")
        ->transform(size);
    app.add_option("--host-memory", s.host_bytes, "cap of pinned memory [what the system allows]")->transform(size);
    app.add_option("--d2h-rate", s.d2h_bytes_per_second, "link rate to the host in bytes/s, e.g. 3GB; 0: no limit")
        ->transform(size);
    app.add_option("--h2d-rate", s.h2d_bytes_per_second, "link rate to the device in bytes/s; 0: no limit")
        ->transform(size);
    app.add_option("--floor", s.floor_bytes, "activations smaller than this stay on the device")->transform(size);
    app.add_flag("--verify", s.verify, "checksum every activation before, between and after its copies");
}

void add_modes(CLI::App &app, settings &s) {
    std::vector<std::string> names;
    std::string listed;
    for (const mode &m : all_modes()) {
        names.emplace_back(m.name);
        listed += fmt::format("\n  {:<18} {}", m.name, m.summary);
    }
    app.add_option("--mode", s.modes, "one of the modes below; may be repeated [all]")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->check(CLI::IsMember(names));
    app.add_flag("--json", s.json, "print one JSON object instead of the table");
    app.footer("Modes:" + listed +
               "\n\nExit status: 0 done (an out-of-memory row is a result), 1 failed or the modes' losses differ,\n"
               "2 wrong usage, 130 interrupted.");
}

// What CLI11 cannot say about one option alone. Empty: all is well.
std::string complaint(const settings &s) {
    if (s.shape.width % s.shape.heads != 0) {
        return fmt::format("--width {} is not a multiple of --heads {}", s.shape.width, s.shape.heads);
    }
    const uint64_t physical = physical_memory_bytes();
    if (s.device_bytes == 0) {
        return "--device-memory is 0: the model needs some";
    }
    if (s.device_bytes > physical) {
        return fmt::format("--device-memory {} MiB is more than this machine's memory, {} MiB", s.device_bytes >> 20U,
                           physical >> 20U);
    }
    if (s.host_bytes > physical) {
        return fmt::format("--host-memory {} MiB is more than this machine's memory, {} MiB", s.host_bytes >> 20U,
                           physical >> 20U);
    }
    // In floating point, since what is too large may be far too large.
    const auto layers = static_cast<double>(s.shape.layers);
    const double saved = 4.0 * layers * static_cast<double>(s.shape.tokens()) *
                         static_cast<double>(6 * s.shape.width + 2 * s.shape.ffn + s.shape.heads);
    const double weights =
        16.0 * layers * static_cast<double>(s.shape.width) * static_cast<double>(4 * s.shape.width + 3 * s.shape.ffn);
    if (saved + weights > 64.0 * static_cast<double>(physical)) {
        return fmt::format(
            "these sizes need {:.0f} GiB for saved activations and {:.0f} GiB for weights; this machine "
            "has {} GiB",
            saved / 0x1p30, weights / 0x1p30, physical >> 30U);
    }
    return {};
}

}  // namespace

uint64_t saved_bytes_per_layer(const model_shape &shape) {
    return bytes_of(6 * shape.hidden_elements() + 2 * shape.ffn_elements() + shape.row_sum_elements());
}

uint64_t saved_bytes(const model_shape &shape) {
    return static_cast<uint64_t>(shape.layers) * saved_bytes_per_layer(shape);
}

uint64_t largest_saved_bytes(const model_shape &shape) {
    return bytes_of(std::max(shape.hidden_elements(), shape.ffn_elements()));
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
    add_device_options(app, s);
    add_modes(app, s);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        result.exit_code = app.exit(error) == 0 ? 0 : k_usage;
        return result;
    }
    if (const std::string why = complaint(s); !why.empty()) {
        fmt::print(stderr, "train_transformer: {}\n", why);
        result.exit_code = k_usage;
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
