// What a machine gives to the operators of a step.
#pragma once

#include "base/status.hpp"
#include "model/layer_graph.hpp"
#include "model/machine_profile.hpp"
#include "model/step_settings.hpp"

namespace ebb {

struct step_rates {
    double gemm_flops_per_second = 0;
    double attention_flops_per_second = 0;
    double hbm_bytes_per_second = 0;
    double collective_bytes_per_second = 0;
    double all_to_all_bytes_per_second = 0;

    // Of an operator: by what binds.
    [[nodiscard]] double work_ns(const layer_work &work) const noexcept;
    // Of HBM's rate, meanwhile.
    [[nodiscard]] double hbm_fraction(const layer_work &work) const noexcept;
};

// Peaks in the formats of the settings, as far as they are reached. Fails where the machine has no such format.
[[nodiscard]] result<step_rates> rates_of(const machine_profile &machine, const step_settings &settings);

}  // namespace ebb
