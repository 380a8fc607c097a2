// One workload, every policy: each baseline at its best setting, and Ebb's plan, inside one device budget.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "policy/ebb_runs.hpp"
#include "policy/policy_workloads.hpp"

namespace ebb::baselines {

// Slower by no more is as fast.
constexpr double k_tie = 0.001;

struct policy_row {
    std::string system;
    std::string chosen;  // save set and setting; Ebb: GiB of tensors
    double step_ns = 0, exposed_ns = 0;
    uint64_t device_bytes = 0, host_bytes = 0;
    bool fits = false;
};

struct policy_comparison {
    std::string name;
    uint64_t budget_bytes = 0;
    uint64_t least_bytes = 0;        // that any baseline gets by with
    uint64_t keep_bytes = 0;         // that keeping takes
    std::vector<policy_row> rivals;  // keep, recompute, the baselines
    policy_row ebb_row;              // its plan in one pool, as the baselines have
    policy_row staging_row;
    policy_row automatic_row;
    ebb_run one_pool, staging, automatic;

    // The fastest that fits; none: null.
    [[nodiscard]] const policy_row *best() const noexcept;
    // 0 where nothing is to be compared.
    [[nodiscard]] double ratio() const noexcept { return ratio_of(ebb_row); }
    [[nodiscard]] double ratio_of(const policy_row &row) const noexcept;
    [[nodiscard]] bool is_first_or_tied() const noexcept { return ebb_row.fits && ratio() <= 1 + k_tie; }
};

[[nodiscard]] result<policy_comparison> compare_policies(const policy_workload &what);

}  // namespace ebb::baselines
