// The workloads of the published tables as steps, under assumptions that are declared, and the rates that are fitted
// to three of their rows.
#pragma once

#include "base/status.hpp"
#include "model/machine_profile.hpp"
#include "model/model_profile.hpp"
#include "model/published_tables.hpp"
#include "model/step_builder.hpp"
#include "model/xla_copies.hpp"

namespace ebb {

// The declared default of each, and what else it could be.
struct published_assumptions {
    // Collectives are FSDP's gathers and scatters, one total that does not depend on tokens.
    collective_overlap gathers_with_lhs = collective_overlap::across_iterations;
    collective_overlap gathers_without_lhs = collective_overlap::exposed;
    // Or else this part of row 4's collective time in table 1 is experts' all-to-all, on the critical path, which
    // grows with the tokens.
    double all_to_all_share = 0;
    bool copies_wait_without_lhs = true;       // else they hide inside their iteration
    double attention_slowdown = 1;             // against the rate of the other products
    double recompute_slowdown = 1;             // against the same work in forward
    bool recompute_first = false;              // before the last product's input gradient
    bool pipelining_copies_on_device = false;  // what an iteration moves is copied once more in device memory
};

// Three numbers, and which row each is from.
struct published_fit {
    double deepseek_flops_per_second = 0;    // table 1 row 1
    double collective_bytes_per_second = 0;  // table 1 row 4
    double all_to_all_bytes_per_second = 0;  // the same, where there is any
    double llama_flops_per_second = 0;       // table 2 row 2
};

struct published_run {
    built_step step;
    xla_step time;
    double tflops = 0;
};

class published_workload {
public:
    // Profiles by name, from the program.
    [[nodiscard]] static result<published_workload> load();

    [[nodiscard]] const machine_profile &machine() const noexcept { return machine_; }
    [[nodiscard]] const model_profile &model_of(const published_row &row) const noexcept;
    [[nodiscard]] static step_settings settings_of(const published_row &row, const published_assumptions &assumed);
    [[nodiscard]] step_rates rates_of(const published_row &row, const published_assumptions &assumed,
                                      const published_fit &fit) const noexcept;
    [[nodiscard]] static xla_copy_mode copies_of(const published_row &row,
                                                 const published_assumptions &assumed) noexcept;

    [[nodiscard]] published_run run(const published_row &row, const published_assumptions &assumed,
                                    const published_fit &fit) const;
    // The rates at which the rows that may be fitted come out as published.
    [[nodiscard]] published_fit fit(const published_assumptions &assumed) const;

private:
    // Seconds that the collectives of a row take, one after the other.
    struct collective_seconds {
        double gathers = 0;
        double all_to_all = 0;
    };
    [[nodiscard]] collective_seconds collectives_of(const published_row &row, const published_assumptions &assumed,
                                                    const published_fit &fit) const;
    [[nodiscard]] double tflops_ratio(uint32_t table, uint32_t row, const published_assumptions &assumed,
                                      const published_fit &fit) const;
    void split_collectives(const published_assumptions &assumed, published_fit &fit) const;

    machine_profile machine_;
    model_profile deepseek_;
    model_profile llama_;
};

}  // namespace ebb
