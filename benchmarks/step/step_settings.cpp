#include "step_settings.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "command_options.hpp"
#include "modes.hpp"

namespace step {
namespace {

// Vector widths of kernels and the alignment that products want.
constexpr int64_t k_cuda_multiple = 128;

void add_own_options(CLI::App &app, step_settings &s) {
    app.add_option("--device", s.device, "host: this machine's processor; cuda: a GPU")
        ->check(CLI::IsMember({"host", "cuda"}));
    app.add_option("--model", s.model, "dense, or moe: the SwiGLU part of a layer is that of experts")
        ->check(CLI::IsMember({"dense", "moe"}));
    const CLI::Range count(int64_t{1}, int64_t{4096});
    app.add_option("--experts", s.experts, "experts of a layer (moe)")->check(count);
    app.add_option("--top-k", s.top_k, "experts that a token goes to (moe)")->check(count);
    app.add_option("--capacity-factor", s.capacity_factor, "an expert takes that many times its even share (moe)")
        ->check(CLI::Range(0.1, 100.0));
    app.add_option("--auto-warm-up", s.auto_warm_up_steps,
                   "steps of offload-auto that are not timed: it measures and plans meanwhile")
        ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
    app.add_option_function<std::string>(
           "--gpus", [&s](const std::string &text) { s.gpus = text == "all" ? 0 : std::stoll(text); },
           "GPUs that train together, or all; a collective per layer sums their gradients [1]")
        ->check(CLI::IsMember({"all"}) | CLI::Range(1, 64));
    app.add_option("--attention", s.attention,
                   "on a GPU: cudnn, own (products and kernels of this program), or auto: cudnn where it is there")
        ->check(CLI::IsMember({"auto", "cudnn", "own"}));
    app.add_flag("--check", s.check,
                 "compare each operation with double precision on the CPU, and gradients between modes, instead");
}

// The choices that defaults depend on, before the others are read.
step_settings defaults_of(int argc, char **argv) {
    std::string device = "host";
    std::string model = "dense";
    CLI::App app;
    app.set_help_flag();
    app.allow_extras();
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.add_option("--device", device);
    app.add_option("--model", model);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &) {
        // The real parser will say what is wrong.
    }
    return default_settings(device, model);
}

std::string complaint_about_cuda(const step_settings &s) {
    if (s.offload.d2h_bytes_per_second != 0 || s.offload.h2d_bytes_per_second != 0) {
        return "--d2h-rate and --h2d-rate are for --device host";
    }
    for (const auto &[name, value] : {std::pair("--width", s.shape.width), std::pair("--ffn", s.shape.ffn)}) {
        if (value % k_cuda_multiple != 0) {
            return fmt::format("{} {} is not a multiple of {}, as the products on a GPU want it", name, value,
                               k_cuda_multiple);
        }
    }
    if (s.shape.head_width() % 8 != 0 || s.shape.head_width() > 128) {
        return fmt::format("--width {} and --heads {} make heads of width {}; on a GPU a multiple of 8 up to 128 works",
                           s.shape.width, s.shape.heads, s.shape.head_width());
    }
    if (s.model == "moe" && s.experts % 8 != 0) {
        return fmt::format("--experts {} is not a multiple of 8, as the products on a GPU want it", s.experts);
    }
    return {};
}

std::string complaint_about_host(const step_settings &s) {
    if (s.gpus != 1) {
        return "--gpus is for --device cuda";
    }
    const step_shape shape = s.shape_at(s.shape.micro_batch);
    const auto layers = static_cast<double>(shape.layers);
    const auto width = static_cast<double>(shape.width);
    const auto ffn = static_cast<double>(shape.ffn);
    const double rows_per_token = shape.has_experts() ? static_cast<double>(shape.top_k) : 1.0;
    const auto experts = static_cast<double>(std::max<int64_t>(shape.experts, 1));
    const double saved =
        4.0 * layers * static_cast<double>(shape.tokens()) * (6.0 * width + 2.0 * rows_per_token * ffn);
    const double weights = 16.0 * layers * width * (4.0 * width + 3.0 * ffn * experts);
    return train::complaint_about_memory(s.offload, {saved, weights});
}

std::string complaint(const step_settings &s) {
    if (s.model == "moe" && s.top_k > s.experts) {
        return fmt::format("--top-k {} is more than --experts {}", s.top_k, s.experts);
    }
    if (const std::string why = train::complaint_about_heads(s.shape); !why.empty()) {
        return why;
    }
    return s.device == "cuda" ? complaint_about_cuda(s) : complaint_about_host(s);
}

}  // namespace

step_shape step_settings::shape_at(int64_t micro_batch) const {
    step_shape at{shape};
    at.micro_batch = micro_batch;
    if (model == "moe") {
        at.experts = experts;
        at.top_k = top_k;
        at.capacity_factor = capacity_factor;
    }
    return at;
}

train::loop_settings step_settings::loop_of(const std::string &mode) const {
    const int64_t timed = steps - warm_up_steps;
    const int64_t warm_up = mode == "offload-auto" ? std::max(warm_up_steps, auto_warm_up_steps) : warm_up_steps;
    return {warm_up + timed, warm_up};
}

train::saved_sizes saved_by(const step_shape &shape, uint64_t element_bytes) {
    const auto bytes_of = [element_bytes](int64_t elements) { return static_cast<uint64_t>(elements) * element_bytes; };
    const uint64_t hidden = bytes_of(shape.hidden_elements());
    const uint64_t ffn = bytes_of(shape.most_ffn_rows() * shape.ffn);
    train::saved_sizes saved;
    saved.layer_bytes = 6 * hidden + 2 * ffn + static_cast<uint64_t>(shape.row_sum_elements()) * sizeof(float);
    saved.micro_batch_bytes = static_cast<uint64_t>(shape.layers) * saved.layer_bytes;
    saved.largest_bytes = std::max(hidden, ffn);
    return saved;
}

step_settings default_settings(const std::string &device, const std::string &model) {
    step_settings s;
    const bool moe = model == "moe";
    s.device = device;
    s.model = model;
    s.experts = 8;
    s.top_k = 2;
    s.capacity_factor = 1.25;
    s.accumulation = 1;
    if (device == "cuda") {
        s.shape =
            moe ? train::model_shape{6, 4096, 32, 2048, 8192, 4} : train::model_shape{6, 6144, 48, 21504, 8192, 2};
        s.experts = 16;
        s.top_k = 4;
        s.steps = 5;
        s.offload.device_bytes = 0;
    } else {
        s.shape = moe ? train::model_shape{8, 128, 4, 256, 256, 5} : train::model_shape{8, 128, 4, 512, 256, 5};
        s.steps = 6;
        s.offload.device_bytes = 448ULL << 20U;
        s.offload.d2h_bytes_per_second = 3'000'000'000;
        s.offload.h2d_bytes_per_second = 3'000'000'000;
        s.offload.floor_bytes = 64ULL << 10U;
    }
    s.auto_warm_up_steps = 14;
    return s;
}

parsed parse_command_line(int argc, char **argv) {
    parsed result;
    result.values = defaults_of(argc, argv);
    step_settings &s = result.values;
    CLI::App app(
        "Measures whole training steps of a transformer, dense or with experts, in several ways to keep its\n"
        "activations: on the device, computed again, or offloaded to host memory by Ebb. Beside the measured\n"
        "step stands the one that the planner predicts from the step that offload-auto recorded. Sizes not\n"
        "given depend on --device and --model; --help shows them.",
        "step_bench");
    app.option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    add_own_options(app, s);
    train::add_model_options(app, s);
    train::add_offload_options(app, s.offload);
    train::add_output_options(app, s);
    result.exit_code = train::parse_options(app, argc, argv, [&s] { return complaint(s); });
    if (result.exit_code) {
        return result;
    }
    if (s.modes.empty()) {
        for (const train::mode &m : train::all_modes()) {
            s.modes.emplace_back(m.name);
        }
    }
    s.warm_up_steps = std::min(s.warm_up_steps, s.steps - 1);
    return result;
}

}  // namespace step
