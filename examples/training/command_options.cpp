#include "command_options.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "program.hpp"

namespace train {
namespace {

// No dimension above this, so that no product of four of them overflows.
constexpr int64_t k_largest_dimension = 1 << 15;

uint64_t physical_memory_bytes() {
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page = sysconf(_SC_PAGE_SIZE);
    return pages > 0 && page > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page) : ~uint64_t{0};
}

}  // namespace

void add_model_options(CLI::App &app, run_settings &s) {
    const CLI::Range dimension(int64_t{1}, k_largest_dimension);
    app.add_option("--layers", s.shape.layers, "decoder layers")->check(dimension);
    app.add_option("--width", s.shape.width, "width of the residual stream; a multiple of --heads")->check(dimension);
    app.add_option("--heads", s.shape.heads, "attention heads")->check(dimension);
    app.add_option("--ffn", s.shape.ffn, "width of the SwiGLU layer")->check(dimension);
    app.add_option("--sequence", s.shape.sequence, "tokens (bytes of text) per sequence")->check(dimension);
    app.add_option("--micro-batch", s.shape.micro_batch, "sequences per micro batch")->check(dimension);
    app.add_option("--large-micro-batch", s.large_micro_batch,
                   "also run keep and offload-auto at this micro batch; 0: do not")
        ->check(CLI::Range(int64_t{0}, k_largest_dimension));
    app.add_option("--accumulation", s.accumulation, "micro batches per optimizer step")->check(dimension);
    app.add_option("--steps", s.steps, "optimizer steps; the first two are not timed if there are more")
        ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
    app.add_option("--seed", s.seed, "of the weights and of the order of the text");
    app.add_option("--lr", s.learning_rate, "learning rate")->check(CLI::Range(0.0, 1.0));
}

void add_offload_options(CLI::App &app, offload_settings &s) {
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

void add_output_options(CLI::App &app, run_settings &s) {
    std::vector<std::string> names;
    std::string listed;
    for (const mode &m : all_modes()) {
        names.emplace_back(m.name);
        listed += fmt::format("\n  {:<18} {}", m.name, m.summary);
    }
    app.add_option("--mode,--modes", s.modes,
                   "one of the modes below, or some with commas between; may be repeated [all]")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->delimiter(',')
        ->check(CLI::IsMember(names));
    app.add_flag("--json", s.json, "print one JSON object instead of the table");
    app.footer("Modes:" + listed +
               "\n\nExit status: 0 done (an out-of-memory row is a result), 1 failed or the modes' losses differ,\n"
               "2 wrong usage, 130 interrupted.");
}

std::optional<int> parse_options(CLI::App &app, int argc, char **argv, const std::function<std::string()> &complaint) {
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        return app.exit(error) == 0 ? k_done : k_wrong_usage;
    }
    if (const std::string why = complaint(); !why.empty()) {
        fmt::print(stderr, "{}: {}\n", app.get_name(), why);
        return k_wrong_usage;
    }
    return {};
}

std::string complaint_about_heads(const model_shape &shape) {
    return shape.width % shape.heads == 0
               ? std::string()
               : fmt::format("--width {} is not a multiple of --heads {}", shape.width, shape.heads);
}

std::string complaint_about_memory(const offload_settings &s, const model_bytes &needed) {
    const uint64_t physical = physical_memory_bytes();
    if (s.device_bytes == 0) {
        return "--device-memory is 0: the model needs some";
    }
    for (const auto &[option, bytes] :
         {std::pair("--device-memory", s.device_bytes), std::pair("--host-memory", s.host_bytes)}) {
        if (bytes > physical) {
            return fmt::format("{} {} MiB is more than this machine's memory, {} MiB", option, bytes >> 20U,
                               physical >> 20U);
        }
    }
    if (needed.saved + needed.weights > 64.0 * static_cast<double>(physical)) {
        return fmt::format(
            "these sizes need {:.0f} GiB for saved activations and {:.0f} GiB for weights; this machine "
            "has {} GiB",
            needed.saved / 0x1p30, needed.weights / 0x1p30, physical >> 30U);
    }
    return {};
}

}  // namespace train
