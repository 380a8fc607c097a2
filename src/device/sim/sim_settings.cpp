#include "device/sim/sim_settings.hpp"

#include <fmt/core.h>

#include <optional>

#include "base/quantity.hpp"

namespace ebb {
namespace {

constexpr uint64_t k_sim_most_bytes = 1ULL << 46U;  // of address space, beside everything else

status bad_sim_setting(std::string_view key, std::string_view value, const char *allowed) {
    return {code::invalid_argument, fmt::format("device \"sim\": {} is \"{}\"; allowed: {}", key, value, allowed)};
}

status set_sim_bytes(uint64_t &bytes, std::string_view key, std::string_view value) {
    const std::optional<uint64_t> parsed = parse_bytes(value);
    if (!parsed.has_value() || *parsed == 0 || *parsed > k_sim_most_bytes) {
        return bad_sim_setting(key, value, "bytes above 0 and up to 64TiB, as in 165GiB");
    }
    bytes = *parsed;
    return {};
}

status set_sim_rate(double &rate, std::string_view key, std::string_view value) {
    const std::optional<uint64_t> parsed = parse_rate(value);
    if (!parsed.has_value() || *parsed == 0) {
        return bad_sim_setting(key, value, "a rate above 0, as in 193GB/s");
    }
    rate = static_cast<double>(*parsed);
    return {};
}

status set_sim_latency(sim_machine &machine, std::string_view key, std::string_view value) {
    constexpr uint64_t k_most_ns = 1'000'000'000;
    const std::optional<uint64_t> parsed = parse_count(value);
    if (!parsed.has_value() || *parsed > k_most_ns) {
        return bad_sim_setting(key, value, "a whole number up to 1000000000");
    }
    machine.d2h.latency_ps = machine.h2d.latency_ps = *parsed * 1000;
    return {};
}

status set_sim_integrated(sim_machine &machine, std::string_view key, std::string_view value) {
    if (value != "on" && value != "off") {
        return bad_sim_setting(key, value, "on, off");
    }
    machine.integrated = value == "on";
    return {};
}

status set_sim_value(sim_machine &machine, std::string_view key, std::string_view value) {
    if (key == "device_bytes") {
        return set_sim_bytes(machine.device_bytes, key, value);
    }
    if (key == "host_bytes") {
        return set_sim_bytes(machine.host_bytes, key, value);
    }
    if (key == "d2h_bytes_per_second") {
        return set_sim_rate(machine.d2h.bytes_per_second, key, value);
    }
    if (key == "h2d_bytes_per_second") {
        return set_sim_rate(machine.h2d.bytes_per_second, key, value);
    }
    if (key == "latency_ns") {
        return set_sim_latency(machine, key, value);
    }
    if (key == "integrated") {
        return set_sim_integrated(machine, key, value);
    }
    return {code::invalid_argument,
            fmt::format("device \"sim\": there is no setting \"{}\"; allowed: device_bytes, host_bytes, "
                        "d2h_bytes_per_second, h2d_bytes_per_second, latency_ns, integrated",
                        key)};
}

}  // namespace

sim_machine default_sim_machine() {
    constexpr uint64_t k_gb = 1'000'000'000;
    constexpr sim_time_ps k_latency_ps = 3'000'000;
    constexpr uint64_t k_mib = 1ULL << 20U;
    sim_machine machine;
    machine.device_bytes = 186 * k_gb;
    machine.host_bytes = 240 * k_gb;  // one Grace has 480 for two GPUs
    // Measured alone with large copies; a chip-to-chip link is near its rate from 64 MiB on.
    machine.d2h = {193e9, 0, k_latency_ps, {{k_mib, 0.5}, {16 * k_mib, 0.95}, {64 * k_mib, 1}}};
    machine.h2d = {201e9, 0, k_latency_ps, {{k_mib, 0.5}, {16 * k_mib, 0.95}, {64 * k_mib, 1}}};
    machine.hbm_bytes_per_second = 8e12;
    machine.host_dram_bytes_per_second = 381e9;
    machine.gpus_per_host_memory = 2;
    machine.collective_loss = 0.1;
    return machine;
}

result<sim_machine> parse_sim_machine(std::string_view text) {
    sim_machine machine = default_sim_machine();
    while (!text.empty()) {
        const std::string_view setting = text.substr(0, text.find(','));
        const size_t equals = setting.find('=');
        if (equals == std::string_view::npos) {
            return status(bad_sim_setting("a setting", setting, "key=value, as in d2h_bytes_per_second=52GB/s"));
        }
        EBB_TRY(set_sim_value(machine, setting.substr(0, equals), setting.substr(equals + 1)));
        text.remove_prefix(setting.size() == text.size() ? text.size() : setting.size() + 1);
    }
    return machine;
}

}  // namespace ebb
