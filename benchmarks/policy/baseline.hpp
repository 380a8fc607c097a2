// What a system in use today does with the tensors that backward needs, small enough to read: a rule that plays a step
// on a simulated machine through the public device interface. What each models and leaves out stands at the top of
// its file. All of them are told the same save set (built_step::save_set): which tensors move, which are kept, and
// which are computed again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "device/sim/sim_machine.hpp"
#include "model/step_builder.hpp"

namespace ebb::baselines {

// Smaller ones are kept by everybody.
constexpr uint64_t k_least_moved_bytes = uint64_t{1} << 20U;

struct baseline_result {
    double step_ns = 0;
    double exposed_ns = 0;           // longer than the same step when copies cost nothing
    uint64_t device_peak_bytes = 0;  // fixed bytes included
    uint64_t host_peak_bytes = 0;    // pinned
    bool out_of_memory = false;      // of the device or of the host: the times are what it would have been
};

// What a user of that system sets by hand.
struct setting {
    std::string text;
    uint64_t count = 0;   // of tensors, layers, modules or copies: the baseline's file says of what
    uint64_t window = 0;  // a second number, where there is one
};

class baseline {
public:
    baseline() = default;
    virtual ~baseline() = default;
    baseline(const baseline &) = delete;
    baseline &operator=(const baseline &) = delete;

    [[nodiscard]] virtual const char *name() const noexcept = 0;
    // What is worth a try. The best that fits counts, which is generous: nobody tunes that well by hand.
    [[nodiscard]] virtual std::vector<setting> settings(const built_step &step) const = 0;
    [[nodiscard]] virtual result<baseline_result> play(const built_step &step, const sim_machine &machine,
                                                       uint64_t device_budget_bytes, const setting &chosen) const = 0;
};

[[nodiscard]] std::unique_ptr<baseline> make_keep();
[[nodiscard]] std::unique_ptr<baseline> make_recompute();
[[nodiscard]] std::unique_ptr<baseline> make_synchronous();
[[nodiscard]] std::unique_ptr<baseline> make_hook_stash();
[[nodiscard]] std::unique_ptr<baseline> make_double_buffer();
[[nodiscard]] std::unique_ptr<baseline> make_static_window();
[[nodiscard]] std::unique_ptr<baseline> make_module_groups();
[[nodiscard]] std::unique_ptr<baseline> make_xla_own_iteration();
[[nodiscard]] std::unique_ptr<baseline> make_xla_pipelined();
[[nodiscard]] std::unique_ptr<baseline> make_adaptive_keep();

// The eight, in the order above.
[[nodiscard]] std::vector<std::unique_ptr<baseline>> make_all_baselines();

// Of all settings the fastest that fits; if none does, the one that is least beyond.
struct best_setting {
    setting chosen;
    baseline_result result;
};
[[nodiscard]] result<best_setting> play_best(const baseline &what, const built_step &step, const sim_machine &machine,
                                             uint64_t device_budget_bytes);

}  // namespace ebb::baselines
