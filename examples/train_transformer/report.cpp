#include "report.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "ebb/ebb.h"
#include "modes.hpp"

namespace train {
namespace {

using json = nlohmann::ordered_json;

double mib(uint64_t bytes) {
    return static_cast<double>(bytes) / 0x1p20;
}

std::string processor() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("model name")) {
            return line.substr(line.find(':') + 2);
        }
    }
    return "unknown processor";
}

std::string rate(uint64_t bytes_per_second) {
    return bytes_per_second == 0 ? "unlimited"
                                 : fmt::format("{:.1f} GB/s", static_cast<double>(bytes_per_second) * 1e-9);
}

// A C hexadecimal floating constant: every bit, readable by strtod.
std::string hexadecimal(double value) {
    char text[40];
    std::snprintf(text, sizeof(text), "%a", value);
    return text;
}

std::string row_text(const mode_result &r) {
    const std::string memory = fmt::format("{:>16.1f}  {:>15.1f}", mib(r.device_peak_bytes), mib(r.pinned_peak_bytes));
    if (r.out_of_memory) {
        return fmt::format("{:<17}  {:>11}  {:>8}  {:>9}  {}  {:>15}  {:>16}  {}\n", r.mode, r.micro_batch, "-", "-",
                           memory, "-", "-", "out of memory");
    }
    return fmt::format("{:<17}  {:>11}  {:>8.1f}  {:>9.0f}  {}  {:>15.1f}  {:>16.1f}  {:.6f}\n", r.mode, r.micro_batch,
                       r.step_ms, r.tokens_per_s, memory, r.hidden_ms, r.exposed_ms, r.losses.back());
}

json mode_json(const mode_result &r) {
    json losses = json::array();
    for (const double loss : r.losses) {
        losses.push_back(hexadecimal(loss));
    }
    const bool ok = !r.out_of_memory;
    auto measured = [ok](double value) { return ok ? json(value) : json(nullptr); };
    return {{"mode", r.mode},
            {"micro_batch", r.micro_batch},
            {"status", ok ? "ok" : "out_of_memory"},
            {"step_ms", measured(r.step_ms)},
            {"tokens_per_s", measured(r.tokens_per_s)},
            {"device_peak_bytes", r.device_peak_bytes},
            {"pinned_peak_bytes", r.pinned_peak_bytes},
            {"hidden_ms", measured(r.hidden_ms)},
            {"exposed_ms", measured(r.exposed_ms)},
            {"losses", losses}};
}

}  // namespace

std::string context_text(const settings &s, const text_data &text) {
    const model_shape &m = s.shape;
    return fmt::format(
        "{} x {}; link {} to the host, {} to the device; device memory {:.0f} MiB\n"
        "{} layers, width {}, {} heads, SwiGLU {}, {:.1f} M weights; {} KiB {}\n"
        "{} steps ({} timed) of {} micro batches of {} sequences of {} tokens; saved per micro batch: {:.1f} MiB\n\n",
        std::thread::hardware_concurrency(), processor(), rate(s.d2h_bytes_per_second), rate(s.h2d_bytes_per_second),
        mib(s.device_bytes), m.layers, m.width, m.heads, m.ffn, static_cast<double>(weight_elements(m)) * 1e-6,
        text.bytes.size() / 1024, text.source, s.steps, s.steps - s.warm_up_steps, s.accumulation, m.micro_batch,
        m.sequence, mib(saved_bytes(m)));
}

std::string table(const std::vector<mode_result> &results) {
    std::string text = fmt::format("{:<17}  {:>11}  {:>8}  {:>9}  {:>16}  {:>15}  {:>15}  {:>16}  {}\n", "mode",
                                   "micro batch", "step, ms", "tokens/s", "device peak, MiB", "pinned host, MiB",
                                   "hidden, ms", "exposed, ms", "loss");
    for (const mode_result &r : results) {
        text += row_text(r);
    }
    return text;
}

std::string json_text(const settings &s, const text_data &text, const std::vector<mode_result> &results) {
    const model_shape &m = s.shape;
    json modes = json::array();
    for (const mode_result &r : results) {
        modes.push_back(mode_json(r));
    }
    const json context{{"library", ebb_build_info()},
                       {"processor", processor()},
                       {"processors", std::thread::hardware_concurrency()},
                       {"text", text.source},
                       {"text_bytes", text.bytes.size()},
                       {"layers", m.layers},
                       {"width", m.width},
                       {"heads", m.heads},
                       {"ffn", m.ffn},
                       {"sequence", m.sequence},
                       {"micro_batch", m.micro_batch},
                       {"accumulation", s.accumulation},
                       {"steps", s.steps},
                       {"timed_steps", s.steps - s.warm_up_steps},
                       {"seed", s.seed},
                       {"weights", weight_elements(m)},
                       {"saved_bytes_per_micro_batch", saved_bytes(m)},
                       {"device_bytes", s.device_bytes},
                       {"d2h_bytes_per_second", s.d2h_bytes_per_second},
                       {"h2d_bytes_per_second", s.h2d_bytes_per_second},
                       {"verify", s.verify}};
    return json{{"context", context}, {"modes", modes}}.dump(2) + "\n";
}

}  // namespace train
