// The options of a runtime. One table (options()) gives their names, parsing, ranges, defaults, printing and
// docs/environment.md. A value is the explicit field's, else that of the EBB_* variable, else the default.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/log.hpp"
#include "base/status.hpp"

namespace ebb {

// In the order of the fields of ebb_runtime_options (include/ebb/ebb.h).
enum class option : uint8_t {
    device,
    device_ordinal,
    lanes,
    device_budget_bytes,
    staging_bytes,
    max_activation_bytes,
    host_bytes,
    min_offload_bytes,
    policy,
    keep_last,
    prefetch_bytes,
    source_bytes,
    chunk_bytes,
    sample_every,
    verify,
    log_level,
    host_processes,
    host_device_bytes,
    host_d2h_bytes_per_second,
    host_h2d_bytes_per_second,
    record,
    calibrate,
    nvtx,
    cuda_library,
};
constexpr size_t k_option_count = 24;

enum class option_type : uint8_t { text, count, bytes, rate, toggle, word };

// Words that stand for numbers; the numbers are those of the C ABI.
constexpr uint64_t k_auto = 0;                           // EBB_PREFETCH_AUTO, EBB_SOURCES_AUTO, "learned"
constexpr uint64_t k_prefetch_none = ~uint64_t{0};       // EBB_PREFETCH_NONE
constexpr uint64_t k_prefetch_layer = ~uint64_t{0} - 1;  // EBB_PREFETCH_LAYER
constexpr uint64_t k_sources_none = ~uint64_t{0};        // EBB_SOURCES_NONE
constexpr uint64_t k_off = 1;                            // EBB_OFF
constexpr uint64_t k_on = 2;                             // EBB_ON

struct option_word {
    std::string_view text;
    uint64_t value;
};

struct option_row {
    option id;
    std::string_view name;      // the field's
    std::string_view variable;  // the environment's
    option_type type;
    std::string_view default_text;
    std::vector<option_word> words;  // accepted beside (type word: instead of) a number
    uint64_t minimum;
    uint64_t maximum;
    std::string_view meaning;
};

[[nodiscard]] const std::array<option_row, k_option_count> &options();

// What the caller set explicitly: the C ABI's numbers (those of words included), or a text as in a variable.
class config_overrides {
public:
    void set(option o, uint64_t value) { values_[static_cast<size_t>(o)] = value; }
    void set(option o, std::string value) { values_[static_cast<size_t>(o)] = std::move(value); }
    [[nodiscard]] const std::variant<std::monostate, uint64_t, std::string> &get(option o) const {
        return values_[static_cast<size_t>(o)];
    }

private:
    std::array<std::variant<std::monostate, uint64_t, std::string>, k_option_count> values_;
};

enum class option_origin : uint8_t { by_default, environment, field };

// The resolved set. The initialisers are the table's defaults (a test compares them).
struct config {
    std::string device = "auto";
    int32_t device_ordinal = 0;
    uint32_t lanes = 1;
    uint64_t device_budget_bytes = k_auto;   // auto: learned
    uint64_t staging_bytes = k_auto;         // auto: a share of the device budget
    uint64_t max_activation_bytes = k_auto;  // auto: learned in the first step
    uint64_t host_bytes = k_auto;            // auto: a share of what limits leave
    uint64_t min_offload_bytes = 1U << 20U;
    std::string policy = "auto";
    uint64_t keep_last = 0;
    uint64_t prefetch_bytes = k_auto;  // or k_prefetch_none, k_prefetch_layer
    uint64_t source_bytes = k_auto;    // or k_sources_none
    uint64_t chunk_bytes = k_auto;     // auto: the device's
    uint32_t sample_every = 16;
    bool verify = false;
    ebb::log_level log_level = ebb::log_level::warning;
    uint32_t host_processes = 1;
    uint64_t host_device_bytes = uint64_t{1} << 30U;
    uint64_t host_d2h_bytes_per_second = k_auto;  // auto: no limit
    uint64_t host_h2d_bytes_per_second = k_auto;
    std::string record = "none";  // a file
    bool calibrate = false;
    bool nvtx = false;
    std::string cuda_library = "auto";  // or a file

    std::array<option_origin, k_option_count> origins{};

    // How a message should call the option: by the variable where that set it, else by the field.
    [[nodiscard]] std::string_view called(option o) const noexcept;
};

// `environment` is a null-terminated list of NAME=value as in environ, null for the process's own. A malformed
// value is invalid_argument and is named, with what is allowed. Each unknown EBB_ variable gives one warning through
// `log`, at the level that was resolved; `log` takes that level.
[[nodiscard]] result<config> resolve_config(const config_overrides &overrides, logger &log,
                                            const char *const *environment = nullptr);

// The option's value as its variable would be written.
[[nodiscard]] std::string format_option(const config &c, option o);

// docs/environment.md, whole.
[[nodiscard]] std::string environment_docs();

}  // namespace ebb
