#include "device/sim/sim_machine.hpp"

#include <fmt/core.h>

#include <cmath>
#include <string>

namespace ebb {
namespace {

status check_sim_number(const std::string &name, double value, double least, double below) {
    if (std::isfinite(value) && value >= least && value < below) {
        return {};
    }
    const std::string most = std::isfinite(below) ? fmt::format(" and below {:g}", below) : std::string();
    return {code::invalid_argument,
            fmt::format("sim device: {} is {:g}, must be at least {:g}{}", name, value, least, most)};
}

status check_sim_link(const std::string &name, const sim_link &link) {
    EBB_TRY(check_sim_number(name + ".bytes_per_second", link.bytes_per_second, 0, HUGE_VAL));
    EBB_TRY(check_sim_number(name + ".both_bytes_per_second", link.both_bytes_per_second, 0, HUGE_VAL));
    uint64_t last_bytes = 0;
    for (const sim_link::point &p : link.curve) {
        if (p.size_bytes <= last_bytes) {
            return {code::invalid_argument,
                    fmt::format("sim device: {}.curve has {} bytes after {}: sizes must be above 0 and rise", name,
                                p.size_bytes, last_bytes)};
        }
        if (!(p.fraction > 0 && p.fraction <= 1)) {
            return {code::invalid_argument, fmt::format("sim device: {}.curve has fraction {:g} at {} bytes, must be "
                                                        "above 0 and at most 1",
                                                        name, p.fraction, p.size_bytes)};
        }
        last_bytes = p.size_bytes;
    }
    return {};
}

}  // namespace

double sim_link::fraction_at(uint64_t size_bytes) const noexcept {
    if (curve.empty()) {
        return 1;
    }
    if (size_bytes <= curve.front().size_bytes) {
        return curve.front().fraction;
    }
    for (size_t i = 1; i < curve.size(); ++i) {
        const point &low = curve[i - 1];
        const point &high = curve[i];
        if (size_bytes <= high.size_bytes) {
            const double part = static_cast<double>(size_bytes - low.size_bytes) /
                                static_cast<double>(high.size_bytes - low.size_bytes);
            return low.fraction + part * (high.fraction - low.fraction);
        }
    }
    return curve.back().fraction;
}

status check_machine(const sim_machine &machine) {
    EBB_TRY(check_sim_link("d2h", machine.d2h));
    EBB_TRY(check_sim_link("h2d", machine.h2d));
    EBB_TRY(check_sim_number("hbm_bytes_per_second", machine.hbm_bytes_per_second, 0, HUGE_VAL));
    EBB_TRY(check_sim_number("host_dram_bytes_per_second", machine.host_dram_bytes_per_second, 0, HUGE_VAL));
    EBB_TRY(check_sim_number("gpus_per_host_memory", machine.gpus_per_host_memory, 1, HUGE_VAL));
    return check_sim_number("collective_loss", machine.collective_loss, 0, 1);
}

}  // namespace ebb
