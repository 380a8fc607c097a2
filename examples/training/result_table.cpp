#include "result_table.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <thread>

namespace train {
namespace {

using json = nlohmann::ordered_json;

// A C hexadecimal floating constant: every bit, readable by strtod.
std::string hexadecimal(double value) {
    char text[40];
    std::snprintf(text, sizeof(text), "%a", value);
    return text;
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

std::string rate_text(uint64_t bytes_per_second) {
    return bytes_per_second == 0 ? "unlimited"
                                 : fmt::format("{:.1f} GB/s", static_cast<double>(bytes_per_second) * 1e-9);
}

std::string row_text(const mode_result &r, const std::string &extra) {
    const std::string memory = fmt::format("{:>16.1f}  {:>15.1f}", mib(r.device_peak_bytes), mib(r.pinned_peak_bytes));
    if (r.out_of_memory) {
        return fmt::format("{:<17}  {:>11}  {:>8}  {:>9}  {}  {:>15}  {:>16}  {}{}\n", r.mode, r.micro_batch, "-", "-",
                           memory, "-", "-", extra, "out of memory");
    }
    return fmt::format("{:<17}  {:>11}  {:>8.1f}  {:>9.0f}  {}  {:>15.1f}  {:>16.1f}  {}{:.6f}\n", r.mode,
                       r.micro_batch, r.step_ms, r.tokens_per_s, memory, r.hidden_ms, r.exposed_ms, extra,
                       r.losses.back());
}

}  // namespace

double mib(uint64_t bytes) {
    return static_cast<double>(bytes) / 0x1p20;
}

std::string table(const std::vector<mode_result> &results, const std::vector<extra_column> &extra) {
    std::string heads;
    for (const extra_column &column : extra) {
        heads += column.head + "  ";
    }
    std::string text = fmt::format("{:<17}  {:>11}  {:>8}  {:>9}  {:>16}  {:>15}  {:>15}  {:>16}  {}{}\n", "mode",
                                   "micro batch", "step, ms", "tokens/s", "device peak, MiB", "pinned host, MiB",
                                   "hidden, ms", "exposed, ms", heads, "loss");
    for (size_t i = 0; i < results.size(); ++i) {
        std::string cells;
        for (const extra_column &column : extra) {
            cells += fmt::format("{:>{}}  ", column.cells[i], column.head.size());
        }
        text += row_text(results[i], cells);
    }
    return text;
}

std::string machine_text(const offload_settings &s) {
    return fmt::format("{} x {}; link {} to the host, {} to the device; device memory {:.0f} MiB\n",
                       std::thread::hardware_concurrency(), processor(), rate_text(s.d2h_bytes_per_second),
                       rate_text(s.h2d_bytes_per_second), mib(s.device_bytes));
}

json context_json(const run_settings &s) {
    const model_shape &m = s.shape;
    return {{"library", ebb_build_info()},
            {"processor", processor()},
            {"processors", std::thread::hardware_concurrency()},
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
            {"device_bytes", s.offload.device_bytes},
            {"d2h_bytes_per_second", s.offload.d2h_bytes_per_second},
            {"h2d_bytes_per_second", s.offload.h2d_bytes_per_second},
            {"verify", s.offload.verify}};
}

json result_json(const mode_result &r) {
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

}  // namespace train
