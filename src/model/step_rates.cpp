#include "model/step_rates.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ebb {

namespace {

constexpr double k_ns_per_s = 1e9;

result<double> reached_flops(const machine_profile &machine, number_format format) {
    const std::optional<sourced<double>> &peak = machine.peak_flops[static_cast<size_t>(format)];
    if (!peak) {
        return status{code::invalid_argument,
                      fmt::format("machine {} has no /device/peak_flops/{}: it cannot compute in that format",
                                  machine.name, number_format_name(format))};
    }
    return peak->value * machine.flops_reached.value;
}

}  // namespace

double step_rates::work_ns(const layer_work &work) const noexcept {
    const double flops_rate = work.rate == work_rate::attention ? attention_flops_per_second : gemm_flops_per_second;
    const double computed = work.flops > 0 ? work.flops / flops_rate : 0;
    const double moved = work.hbm_bytes > 0 ? work.hbm_bytes / hbm_bytes_per_second : 0;
    const double exchanged = work.exchange_bytes > 0 ? work.exchange_bytes / all_to_all_bytes_per_second : 0;
    return (std::max(computed, moved) + exchanged) * k_ns_per_s;
}

double step_rates::hbm_fraction(const layer_work &work) const noexcept {
    const double time_ns = work_ns(work);
    return time_ns > 0 ? std::min(1.0, work.hbm_bytes * k_ns_per_s / (hbm_bytes_per_second * time_ns)) : 0;
}

result<step_rates> rates_of(const machine_profile &machine, const step_settings &settings) {
    const result<double> gemm = reached_flops(machine, settings.gemm_format);
    if (!gemm.ok()) {
        return gemm.why();
    }
    const result<double> attention = reached_flops(machine, settings.attention_format);
    if (!attention.ok()) {
        return attention.why();
    }
    step_rates rates;
    rates.gemm_flops_per_second = gemm.value();
    rates.attention_flops_per_second = attention.value();
    rates.hbm_bytes_per_second = machine.hbm_bytes_per_second.value * machine.hbm_reached.value;
    rates.collective_bytes_per_second = machine.collective_bytes_per_second.value;
    rates.all_to_all_bytes_per_second = machine.collective_bytes_per_second.value;
    return rates;
}

}  // namespace ebb
